"""A bulk action acts on what its preview has found: each task once, and nothing else."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from peerd.domain.bulk import BulkCancel, BulkChange, BulkRetry, BulkSnooze, BulkState, TaskAction
from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.store.bulk import chunks
from peerd.store.bulk.creating import create_bulk
from peerd.store.bulk.rows import get_bulk
from peerd.store.bulk.selection import preview_bulk
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import tasks
from peerd.store.tasks.rows import lock_tasks
from peerd.testing import eventually
from tests.store.bulk_steps import carry_out, chunk, create, let_the_clock_move, time_of
from tests.store.world import World


def test_what_a_preview_has_found_is_acted_on_and_nothing_else(world: World) -> None:
    dead = [world.task_in(Status.DEAD) for _ in range(3)]
    dies_later = world.task_in(Status.SCHEDULED)
    changed = world.task_in(Status.DEAD)
    let_the_clock_move(world)
    preview = world.read(preview_bulk, BulkRetry(), {"status": "dead"})
    assert (preview.matched, preview.at_least) == (4, False)
    assert [task.id for task in preview.examples] == [changed, *reversed(dead)]
    let_the_clock_move(world)
    world.set(dies_later, status="dead", finished_at=seconds_from_now(-60), updated_at=now())
    world.set(changed, priority=3, updated_at=now())
    later = world.task_in(Status.DEAD)
    long_ago = {name: seconds_from_now(-999) for name in ("created_at", "updated_at", "finished_at")}
    late_by_hand = world.insert(status="dead", **long_ago)
    bulk = world.run(create_bulk, BulkRetry(), {"status": "dead"}, digest=preview.digest)
    assert (bulk.highest_id, bulk.as_of, bulk.matched) == (preview.highest_id, preview.as_of, 4)
    ended = carry_out(world, bulk)
    assert (ended.done, ended.skipped, ended.failed) == (3, 1, 0)
    assert [world.status(task_id) for task_id in dead] == [Status.PENDING] * 3
    assert [world.status(task_id) for task_id in (dies_later, changed, later, late_by_hand)] == [Status.DEAD] * 4


def test_a_task_that_changes_between_its_reading_and_its_lock_is_skipped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    if world.store.is_single_writer:
        return  # no other session writes between them
    same, changed = (world.task_in(Status.DEAD) for _ in range(2))
    bulk = create(world, BulkRetry(), status="dead")

    def change_and_lock(*arguments: Any, **options: Any) -> list[Task]:
        world.set(changed, priority=3, updated_at=now())
        return lock_tasks(*arguments, **options)

    monkeypatch.setattr(chunks, "lock_tasks", change_and_lock)
    ended = carry_out(world, bulk)
    assert (ended.done, ended.skipped) == (1, 1)
    assert (world.status(same), world.status(changed)) == (Status.PENDING, Status.DEAD)


def test_a_task_that_comes_up_again_is_not_acted_on_twice(world: World) -> None:
    cases: list[tuple[Status, TaskAction, dict[str, Any]]] = [
        (Status.DEAD, BulkRetry(), {"status": "dead", "finished_at": now(), "updated_at": now()}),
        (Status.FAILURE, BulkRetry(), {"status": "failure", "start_at": seconds_from_now(86_400), "updated_at": now()}),
        (Status.SCHEDULED, BulkSnooze(86_400.0), {}),
        (Status.PENDING, BulkChange(priority=-5), {}),
        (Status.WORKING, BulkCancel(), {"status": "working", "worker_started_at": now(), "updated_at": now()}),
    ]
    for status, action, again in cases:
        world.empty()
        assert_acts_once(world, status, action, again)


def assert_acts_once(world: World, status: Status, action: TaskAction, again: dict[str, Any]) -> None:
    ids = [world.task_in(status) for _ in range(7)]
    bulk = create(world, action, status=str(status), queue="q")
    leases = {task_id: world.get(task_id).lease for task_id in ids}
    changes: Counter[int] = Counter()
    for _ in range(30):
        before = update_times(world)
        has_ended = chunk(world, 2).bulk is None
        changed = [task_id for task_id, at in update_times(world).items() if at != before[task_id]]
        changes.update(changed)
        for task_id in changed if again else ():
            world.set(task_id, **again)
        if has_ended:
            break
    ended = world.read(get_bulk, bulk.id)
    assert (ended.state, ended.done, ended.skipped) == (BulkState.DONE, 7, 0)
    assert changes == dict.fromkeys(ids, 1)
    raises = isinstance(action, BulkRetry) or status is Status.WORKING
    assert all(world.get(task_id).lease == leases[task_id] + raises for task_id in ids)


def update_times(world: World) -> dict[int, datetime]:
    statement = sa.select(tasks.c.id, tasks.c.updated_at)
    rows = world.rows(statement)
    return {row.id: row.updated_at for row in rows}


def test_times_from_now_are_those_of_the_preview(world: World) -> None:
    old, young = (world.add() for _ in range(2))
    world.set(old, created_at=seconds_from_now(-3600))
    bulk = create(world, BulkCancel(), where=["created_at<-10m"])
    ten_minutes = timedelta(minutes=10)
    was_young_enough = bulk.as_of - ten_minutes + timedelta(milliseconds=5)
    world.set(young, created_at=was_young_enough)
    eventually(lambda: time_of(world) > was_young_enough + ten_minutes, every=0.001)
    ended = carry_out(world, bulk)
    assert (ended.done, ended.skipped) == (1, 0)
    assert (world.status(old), world.status(young)) == (Status.CANCELED, Status.PENDING)


def test_locked_rows_are_passed_over_and_come_again(world: World) -> None:
    if world.store.is_single_writer:
        return  # it has no locks of rows
    ids = [world.task_in(Status.DEAD) for _ in range(5)]
    bulk = create(world, BulkRetry(), status="dead")
    with world.locking(tasks, ids[1], ids[3]):
        for _ in range(4):
            chunk(world)
        found = world.read(get_bulk, bulk.id)
        assert (found.state, found.done, found.postponed) == (BulkState.RUNNING, 3, 2)
        assert chunk(world).pause == chunks.LOCKED_PAUSE, "it does not ask again and again"
    ended = carry_out(world, bulk)
    assert (ended.state, ended.done, ended.skipped, ended.postponed) == (BulkState.DONE, 5, 0, 0)


def test_what_a_preview_could_not_count_is_counted_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peerd.store.bulk.selection.MOST_COUNTED", 3)
    ids = [world.task_in(Status.DEAD) for _ in range(5)]
    bulk = create(world, BulkRetry(), status="dead")
    assert (bulk.state, bulk.matched, bulk.at_least, bulk.progress) == (BulkState.COUNTING, 3, True, None)
    found = chunk(world).bulk
    assert found is not None
    assert (found.state, found.matched, found.at_least, found.done) == (BulkState.RUNNING, 5, False, 0)
    assert carry_out(world, bulk).done == 5
    assert [world.status(task_id) for task_id in ids] == [Status.PENDING] * 5


def test_at_most_so_many_are_acted_on(world: World) -> None:
    ids = [world.task_in(Status.DEAD) for _ in range(5)]
    bulk = create(world, BulkRetry(), most=3, status="dead")
    ended = carry_out(world, bulk, 2)
    assert (ended.matched, ended.done, ended.skipped, ended.progress) == (3, 3, 0, 1.0)
    assert [world.status(task_id) for task_id in ids] == [Status.DEAD] * 2 + [Status.PENDING] * 3, "as they are listed"
