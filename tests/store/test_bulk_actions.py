"""Bulk actions: their rows, and the tasks that their chunks act on, those that the preview has found and no others."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from peerd.domain.bulk import BulkCancel, BulkChange, BulkDelete, BulkMove, BulkRetry, BulkSnooze, BulkState, TaskAction
from peerd.domain.errors import BulkActionHasEnded, BulkActionNotFound, InvalidFilter, NodeNotFound
from peerd.domain.lifecycle import IllegalTransition, Status
from peerd.domain.task import Task
from peerd.store import bulk_chunks
from peerd.store.bulk import (
    cancel_bulk,
    create_bulk,
    get_bulk,
    list_bulk,
    pause_bulk,
    preview_bulk,
    purge_bulk,
    resume_bulk,
)
from peerd.store.bulk_chunks import carry_out_chunk
from peerd.store.schema.tables import attempts, bulk_actions, tasks
from peerd.store.schema.types import now, seconds_from_now
from peerd.store.tasks.rows import lock_tasks
from peerd.testing import eventually
from tests.store.bulk_steps import carry_out, chunk, create, let_the_clock_move, time_of
from tests.store.world import World


def test_a_wrong_request_is_refused_at_the_door(world: World) -> None:
    world.task_in(Status.DEAD)
    refused: list[tuple[type[Exception], TaskAction, dict[str, Any], dict[str, Any]]] = [
        (IllegalTransition, BulkRetry(), {"status": "pending"}, {}),
        (InvalidFilter, BulkRetry(), {"where": ["1=1"]}, {}),
        (NodeNotFound, BulkMove("nowhere"), {"status": "pending"}, {}),
        (NodeNotFound, BulkRetry(), {"node": "nowhere"}, {}),
        (InvalidFilter, BulkRetry(), {"status": "dead"}, {"digest": "ä"}),
        (InvalidFilter, BulkRetry(), {"status": "dead"}, {"digest": ""}),
    ]
    digest = world.read(preview_bulk, BulkRetry(), {"status": "dead"}).digest
    refused += [
        (InvalidFilter, BulkDelete(), {"status": "dead"}, {"digest": digest}),
        (InvalidFilter, BulkRetry(), {"status": "dead", "queue": "q"}, {"digest": digest}),
    ]
    for error, action, fields, more in refused:
        with pytest.raises(error):
            world.run(create_bulk, action, fields, **more)
    assert world.count(bulk_actions) == 0


def test_pause_resume_and_cancel_take_effect_before_the_next_chunk(world: World) -> None:
    for _ in range(6):
        world.task_in(Status.DEAD)
    bulk = create(world, BulkRetry(), status="dead")
    chunk(world, 2)
    assert world.run(pause_bulk, bulk.id).state is BulkState.PAUSED
    assert chunk(world, 2).bulk is None
    assert world.run(resume_bulk, bulk.id).state is BulkState.RUNNING
    result = chunk(world, 2)
    assert result.bulk is not None
    assert (result.bulk.done, result.bulk.progress) == (4, 4 / 6)
    canceled = world.run(cancel_bulk, bulk.id)
    assert (canceled.state, canceled.finished_at is not None) == (BulkState.CANCELED, True)
    assert chunk(world, 2).bulk is None
    for refused in (pause_bulk, resume_bulk, cancel_bulk):
        with pytest.raises(BulkActionHasEnded, match="it is canceled"):
            world.run(refused, bulk.id)
        with pytest.raises(BulkActionNotFound):
            world.run(refused, 10**9)


def test_a_bulk_action_whose_row_is_locked_is_left_alone_and_the_next_one_is_carried_out(world: World) -> None:
    if world.store.is_single_writer:
        return
    dead, scheduled = world.task_in(Status.DEAD), world.task_in(Status.SCHEDULED)
    first = create(world, BulkRetry(), status="dead")
    second = create(world, BulkCancel(), status="scheduled")
    with world.locking(bulk_actions, first.id):
        result = world.run(carry_out_chunk)
        assert result.bulk is not None
        assert (result.bulk.id, result.bulk.done) == (second.id, 1)
        assert world.run(carry_out_chunk).bulk is None
    assert carry_out(world, first).done == 1
    assert (world.status(dead), world.status(scheduled)) == (Status.PENDING, Status.CANCELED)


def test_a_row_that_sql_by_hand_has_spoiled_fails_and_harms_nothing(world: World) -> None:
    for values in (
        {"filter": "{"},
        {"filter": '{"status": "no such"}'},
        {"filter": '{"unknown": 1}'},
        {"filter": '{"where": "id=1"}'},
        {"arguments": '{"node": "nowhere"}', "action": "move"},
        {"action": "explode"},
        {"place": "nonsense"},
        {"postponed": "{}"},
    ):
        dead = world.task_in(Status.DEAD)
        spoiled = create(world, BulkRetry(), status="dead")
        is_spoiled = bulk_actions.c.id == spoiled.id
        world.execute(sa.update(bulk_actions).where(is_spoiled).values(**values))
        chunk(world)
        [(state, error)] = world.rows(sa.select(bulk_actions.c.state, bulk_actions.c.error).where(is_spoiled))
        assert (state, bool(error), world.status(dead)) == ("failed", True, Status.DEAD), values
        world.read(list_bulk)
        assert carry_out(world, create(world, BulkRetry(), status="dead")).done == 1, values


def test_an_error_in_a_chunk_undoes_the_chunk_and_keeps_those_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        world.task_in(Status.WORKING)
    bulk = create(world, BulkCancel(), status="working")
    chunk(world, 2)
    calls = []

    def fail(*_: object, **__: object) -> None:
        calls.append(1)
        raise ZeroDivisionError("in the middle")

    monkeypatch.setattr("peerd.store.tasks.actions.update_tasks", fail)  # behind the rows of the attempts
    result = chunk(world, 2)
    assert result.bulk is not None
    assert (calls, result.bulk.state, result.bulk.done) == ([1], BulkState.FAILED, 2)
    assert result.bulk.error == "ZeroDivisionError: in the middle"
    assert world.count(attempts) == 2
    assert world.read(get_bulk, bulk.id).finished_at is not None


def test_bulk_actions_are_listed_newest_first_and_purged_when_they_ended_long_ago(world: World) -> None:
    first, second, third = (create(world, BulkRetry(), status="dead") for _ in range(3))
    assert [bulk.id for bulk in world.read(list_bulk)] == [third.id, second.id, first.id]
    assert [bulk.id for bulk in world.read(list_bulk, limit=1)] == [third.id]
    carry_out(world, first)
    ended = sa.update(bulk_actions).where(bulk_actions.c.id.in_([first.id, second.id]))
    world.execute(ended.values(finished_at=seconds_from_now(-100)))
    assert world.run(purge_bulk, 200.0) == 0
    assert world.run(purge_bulk, 50.0) == 1
    assert [bulk.id for bulk in world.read(list_bulk, states=[BulkState.RUNNING])] == [third.id, second.id]


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

    monkeypatch.setattr(bulk_chunks, "lock_tasks", change_and_lock)
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
        assert chunk(world).pause == bulk_chunks.LOCKED_PAUSE, "it does not ask again and again"
    ended = carry_out(world, bulk)
    assert (ended.state, ended.done, ended.skipped, ended.postponed) == (BulkState.DONE, 5, 0, 0)


def test_what_a_preview_could_not_count_is_counted_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peerd.store.bulk.MOST_COUNTED", 3)
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
