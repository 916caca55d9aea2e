"""Bulk actions: what they act on, each task once, and that they do what the action on one task does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from peerd.domain.bulk import (
    BulkAction,
    BulkBury,
    BulkCancel,
    BulkChange,
    BulkDelete,
    BulkKick,
    BulkMove,
    BulkMoveToQueue,
    BulkRetry,
    BulkSnooze,
    BulkState,
    TaskAction,
    event_of,
)
from peerd.domain.errors import BulkActionHasEnded, BulkActionNotFound, InvalidFilter, NodeNotFound, UniqueKeyTaken
from peerd.domain.lifecycle import IllegalTransition, Status, sources
from peerd.domain.task import Task
from peerd.store.bulk import chunks
from peerd.store.bulk.chunks import ChunkResult, carry_out_chunk
from peerd.store.bulk.creating import create_bulk
from peerd.store.bulk.rows import cancel_bulk, get_bulk, list_bulk, pause_bulk, purge_bulk, resume_bulk
from peerd.store.bulk.selection import preview_bulk
from peerd.store.enqueue.unique_keys import acquire_key, assign_key
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import attempts, bulk_actions, tasks, unique_keys
from peerd.store.statements.token import new_token
from peerd.store.tasks import actions
from peerd.store.tasks.rows import lock_tasks
from peerd.testing import eventually
from tests.store.world import World

SINGLE: dict[str, tuple[TaskAction, Callable[..., None]]] = {
    "retry": (BulkRetry(), actions.retry),
    "cancel": (BulkCancel("enough"), lambda connection, task_id: actions.cancel(connection, task_id, "enough")),
    "delete": (BulkDelete(), actions.delete),
    "snooze": (BulkSnooze(600.0), lambda connection, task_id: actions.snooze(connection, task_id, 600.0)),
    "move": (BulkMove("a"), lambda connection, task_id: actions.move(connection, task_id, "a")),
    "move to any": (BulkMove(None), lambda connection, task_id: actions.move(connection, task_id, None)),
    "queue": (BulkMoveToQueue("r"), lambda connection, task_id: actions.move_to_queue(connection, task_id, "r")),
    "change": (BulkChange(priority=7), lambda connection, task_id: actions.change(connection, task_id, priority=7)),
    "body": (
        BulkChange(body="[1]"),
        lambda connection, task_id: actions.change(connection, task_id, body="[1]", body_bytes=None),
    ),
    "bury": (BulkBury(), lambda connection, task_id: actions.bury(connection, task_id, 17)),
    "kick": (BulkKick(), actions.kick),
}
OWN = (
    "id",
    "unique_key",
    "worker_started_at",
    "checked_at",
    "finished_at",
    "created_at",
    "updated_at",
    "start_at",
    "finish_at",
)
"""Columns that differ between two tasks to which the same has happened, or that are a moment of the action."""


def create(world: World, action: TaskAction, most: int | None = None, **fields: Any) -> BulkAction:
    eventually(lambda: _clock_has_moved(world))
    return world.store.run(create_bulk, action, fields, most=most)


def _clock_has_moved(world: World) -> bool:
    """SQLite's clock has milliseconds: what the test wrote before is of an earlier one than what comes now."""
    first = world.store.read(lambda connection: connection.execute(sa.select(now())).scalar_one())
    return world.store.read(lambda connection: connection.execute(sa.select(now())).scalar_one()) > first


def chunk(world: World, size: int = 500) -> ChunkResult:
    """The next chunk, which does not wait for the pause after the one before."""
    world.store.run(lambda connection: connection.execute(sa.update(bulk_actions).values(next_at=None)).rowcount)
    eventually(lambda: _clock_has_moved(world))
    return world.store.run(carry_out_chunk, size)


def carry_out(world: World, bulk: BulkAction, size: int = 500) -> BulkAction:
    for _ in range(200):
        chunk(world, size)
        found = world.store.read(get_bulk, bulk.id)
        if found.has_ended:
            return found
    raise AssertionError(bulk)


def comparable(world: World, task_id: int) -> dict[str, Any] | None:
    task = world.find(task_id)
    if task is None:
        return None
    row = {name: getattr(task, name) for name in Task.__struct_fields__ if name not in OWN}
    row |= {name: getattr(task, name) is not None for name in ("finished_at", "start_at", "finish_at", "process_id")}
    row["buried_order"] = world.column(task_id, "buried_order") is not None
    row["attempt_rows"] = [
        (one.lease, one.number, one.outcome, one.error, one.process_id is None) for one in world.attempts(task_id)
    ]
    return row


@pytest.mark.parametrize("name", list(SINGLE))
def test_each_action_does_to_a_task_of_each_status_what_the_action_on_one_task_does(world: World, name: str) -> None:
    action, single = SINGLE[name]
    world.node("a")
    pairs: list[tuple[Status, int, int]] = []
    for status in Status:
        one, other = (world.task_in(status, unique_key=f"{status} {number}") for number in range(2))
        for task_id in (one, other):
            world.set(task_id, finish_at=seconds_from_now(-1.0), crashes=1, result="1", priority=10)
        pairs.append((status, one, other))
    ours = ",".join(str(other) for _, _, other in pairs)
    keep = [f"id!={one}" for _, one, _ in pairs]
    bulk = carry_out(world, create(world, action, where=keep))
    for status, one, other in pairs:
        if status in sources(event_of(action)):
            world.store.run(single, one)
        else:
            with pytest.raises(IllegalTransition):
                world.store.run(single, one)
        assert comparable(world, one) == comparable(world, other), (name, status)
    assert (bulk.state, bulk.done) == (BulkState.DONE, len(sources(event_of(action)))), ours
    assert (bulk.skipped, bulk.failed, bulk.error) == (0, 0, None)
    assert key_rows(world, 0) == key_rows(world, 1)


def key_rows(world: World, number: int) -> list[tuple[str, str, str, bool]]:
    """The unique keys of the tasks that were acted on singly, or in bulk."""
    columns = (unique_keys.c.queue, unique_keys.c.unique_key, unique_keys.c.scope, unique_keys.c.task_id)
    rows = world.store.read(lambda connection: connection.execute(sa.select(*columns)).all())
    mine = [row for row in rows if row.unique_key.endswith(str(number))]
    return sorted((row.queue, row.unique_key.split()[0], row.scope, row.task_id is None) for row in mine)


def test_a_reservation_that_ends_is_no_attempt(world: World) -> None:
    task_id = world.task_in(Status.WORKING)
    world.set(task_id, ttr=60, deadline_at=seconds_from_now(60))
    assert carry_out(world, create(world, BulkCancel(), queue="q")).done == 1
    assert (world.attempts(task_id), world.get(task_id).deadline_at) == ([], None)


def test_what_a_preview_has_found_is_acted_on_and_nothing_else(world: World) -> None:
    dead = [world.task_in(Status.DEAD) for _ in range(3)]
    dies_later = world.task_in(Status.SCHEDULED)
    changed = world.task_in(Status.DEAD)
    eventually(lambda: _clock_has_moved(world))
    preview = world.store.read(preview_bulk, BulkRetry(), {"status": "dead"})
    assert (preview.matched, preview.at_least) == (4, False)
    assert [task.id for task in preview.examples] == [changed, *reversed(dead)]
    eventually(lambda: _clock_has_moved(world))
    world.set(dies_later, status="dead", finished_at=seconds_from_now(-60), updated_at=now())
    world.set(changed, priority=3, updated_at=now())
    later = world.task_in(Status.DEAD)
    long_ago = {name: seconds_from_now(-999) for name in ("created_at", "updated_at", "finished_at")}
    late_by_hand = world.insert(status="dead", **long_ago)
    bulk = world.store.run(create_bulk, BulkRetry(), {"status": "dead"}, digest=preview.digest)
    assert (bulk.highest_id, bulk.as_of, bulk.matched) == (preview.highest_id, preview.as_of, 4)
    ended = carry_out(world, bulk)
    assert (ended.done, ended.skipped, ended.failed) == (3, 1, 0)
    assert [world.status(task_id) for task_id in dead] == [Status.PENDING] * 3
    assert [world.status(task_id) for task_id in (dies_later, changed, later, late_by_hand)] == [Status.DEAD] * 4


def test_a_task_that_changes_between_two_chunks_is_skipped(world: World) -> None:
    ids = [world.task_in(Status.DEAD) for _ in range(4)]
    bulk = create(world, BulkRetry(), status="dead")
    assert chunk(world, 2).rows == 2
    world.store.run(actions.delete, ids[0])
    world.set(ids[1], error="another one", updated_at=now())
    ended = carry_out(world, bulk, 2)
    assert (ended.done, ended.skipped, world.status(ids[1])) == (2, 2, Status.DEAD)


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


@pytest.mark.parametrize(
    ("status", "action", "again"),
    [
        (Status.DEAD, BulkRetry(), {"status": "dead", "finished_at": now(), "updated_at": now()}),
        (Status.FAILURE, BulkRetry(), {"status": "failure", "start_at": seconds_from_now(86_400), "updated_at": now()}),
        (Status.SCHEDULED, BulkSnooze(86_400.0), {}),
        (Status.PENDING, BulkChange(priority=-5), {}),
        (Status.WORKING, BulkCancel(), {"status": "working", "worker_started_at": now(), "updated_at": now()}),
    ],
    ids=["dead", "failure", "scheduled", "pending", "working"],
)
def test_a_task_that_comes_up_again_is_not_acted_on_twice(
    world: World, status: Status, action: TaskAction, again: dict[str, Any]
) -> None:
    ids = [world.task_in(status) for _ in range(7)]
    bulk = create(world, action, status=str(status), queue="q")
    leases = {task_id: world.get(task_id).lease for task_id in ids}
    changes: dict[int, int] = {}
    for _ in range(30):
        before = {task_id: world.get(task_id).updated_at for task_id in ids}
        chunk(world, 2)
        for task_id in ids:
            if world.get(task_id).updated_at != before[task_id]:
                changes[task_id] = changes.get(task_id, 0) + 1
                if again:
                    world.set(task_id, **again)
    ended = world.store.read(get_bulk, bulk.id)
    assert (ended.state, ended.done, ended.skipped) == (BulkState.DONE, 7, 0)
    assert changes == dict.fromkeys(ids, 1)
    raises = isinstance(action, BulkRetry) or status is Status.WORKING
    assert all(world.get(task_id).lease == leases[task_id] + raises for task_id in ids)


def test_times_from_now_are_those_of_the_preview(world: World) -> None:
    old, young = (world.add() for _ in range(2))
    world.set(old, created_at=seconds_from_now(-3600))
    world.set(young, created_at=seconds_from_now(-599.5))
    bulk = create(world, BulkCancel(), where=["created_at<-10m"])
    eventually(lambda: _age(world, young) > timedelta(minutes=10))
    assert carry_out(world, bulk).done == 1
    assert (world.status(old), world.status(young)) == (Status.CANCELED, Status.PENDING)


def _age(world: World, task_id: int) -> timedelta:
    moment = world.store.read(lambda connection: connection.execute(sa.select(now())).scalar_one())
    assert moment is not None
    return moment - world.get(task_id).created_at


def test_a_unique_key_that_a_younger_task_has_is_refused_and_reported(world: World) -> None:
    old = world.task_in(Status.DEAD, unique_key="k")
    younger = world.add(unique_key="k")
    twice = [world.task_in(Status.DEAD, unique_key="twice") for _ in range(2)]
    others = [world.task_in(Status.DEAD, unique_key=f"own {number}") for number in range(3)]
    kept = world.task_in(Status.DEAD, unique_key="for ever", unique_for="forever")
    world.store.run(
        lambda connection: connection.execute(sa.delete(unique_keys).where(unique_keys.c.task_id == others[0]))
    )
    ended = carry_out(world, create(world, BulkRetry(), status="dead"))
    assert (ended.done, ended.failed) == (5, 2)
    errors = {one.task: one.error for one in ended.errors}
    assert errors[old] == str(UniqueKeyTaken(old, "k", younger))
    assert sorted(world.status(task_id) for task_id in twice) == [Status.DEAD, Status.PENDING], "one of them has it"
    for task_id in (*others, kept):
        assert world.status(task_id) is Status.PENDING
        key = world.get(task_id).unique_key
        assert key is not None
        assert world.store.run(acquire_key, "q", key, new_token(), "unfinished") == task_id


def test_tasks_with_keys_are_put_into_another_queue_with_them(world: World) -> None:
    free, taken = (world.add(unique_key=key) for key in ("free", "taken"))
    holder = world.add("r", unique_key="taken")
    there = world.add("r")
    ended = carry_out(world, create(world, BulkMoveToQueue("r"), where=["queue!=s"]))
    assert (ended.done, ended.failed) == (3, 1)
    assert [(world.get(task_id).queue, task_id) for task_id in (free, taken, holder, there)] == [
        ("r", free),
        ("q", taken),
        ("r", holder),
        ("r", there),
    ]
    assert world.store.run(acquire_key, "r", "free", new_token(), "unfinished") == free


def test_locked_rows_are_passed_over_and_come_again(world: World) -> None:
    if world.store.is_single_writer:
        return  # it has no locks of rows
    ids = [world.task_in(Status.DEAD) for _ in range(5)]
    bulk = create(world, BulkRetry(), status="dead")
    with world.locking(tasks, ids[1], ids[3]):
        for _ in range(4):
            chunk(world)
        found = world.store.read(get_bulk, bulk.id)
        assert (found.state, found.done, found.postponed) == (BulkState.RUNNING, 3, 2)
        assert chunk(world).pause == chunks.LOCKED_PAUSE, "it does not ask again and again"
    ended = carry_out(world, bulk)
    assert (ended.state, ended.done, ended.skipped, ended.postponed) == (BulkState.DONE, 5, 0, 0)


def test_a_bulk_action_whose_row_is_locked_is_left_alone_and_the_next_one_is_carried_out(world: World) -> None:
    if world.store.is_single_writer:
        return
    dead, scheduled = world.task_in(Status.DEAD), world.task_in(Status.SCHEDULED)
    first = create(world, BulkRetry(), status="dead")
    second = create(world, BulkCancel(), status="scheduled")
    with world.locking(bulk_actions, first.id):
        result = world.store.run(carry_out_chunk)
        assert result.bulk is not None
        assert (result.bulk.id, result.bulk.done) == (second.id, 1)
        assert world.store.run(carry_out_chunk).bulk is None
    assert carry_out(world, first).done == 1
    assert (world.status(dead), world.status(scheduled)) == (Status.PENDING, Status.CANCELED)


def test_pause_resume_and_cancel_take_effect_before_the_next_chunk(world: World) -> None:
    for _ in range(6):
        world.task_in(Status.DEAD)
    bulk = create(world, BulkRetry(), status="dead")
    chunk(world, 2)
    assert world.store.run(pause_bulk, bulk.id).state is BulkState.PAUSED
    assert chunk(world, 2).bulk is None
    assert world.store.run(resume_bulk, bulk.id).state is BulkState.RUNNING
    result = chunk(world, 2)
    assert result.bulk is not None
    assert (result.bulk.done, result.bulk.progress) == (4, 4 / 6)
    canceled = world.store.run(cancel_bulk, bulk.id)
    assert (canceled.state, canceled.finished_at is not None) == (BulkState.CANCELED, True)
    assert chunk(world, 2).bulk is None
    for refused in (pause_bulk, resume_bulk, cancel_bulk):
        with pytest.raises(BulkActionHasEnded, match="it is canceled"):
            world.store.run(refused, bulk.id)
        with pytest.raises(BulkActionNotFound):
            world.store.run(refused, 10**9)


def test_it_is_paused_and_resumed_with_plain_sql(world: World) -> None:
    ids = [world.task_in(Status.DEAD) for _ in range(3)]
    bulk = create(world, BulkRetry(), status="dead")
    for state, treated in (("paused", 0), ("running", 3)):
        change = sa.text(f"UPDATE bulk_actions SET state = '{state}' WHERE id = {bulk.id}")
        world.store.run(sa.Connection.execute, change)
        chunk(world)
        assert sum(world.status(task_id) is Status.PENDING for task_id in ids) == treated


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


def test_a_rare_task_among_many_is_found(world: World) -> None:
    world.store.run(lambda connection: connection.execute(sa.insert(tasks), [{"queue": "q", "error": "x"}] * 1200))
    rare = world.insert(error="the needle")
    world.store.run(lambda connection: connection.execute(sa.insert(tasks), [{"queue": "q"}] * 700))
    ended = carry_out(world, create(world, BulkCancel(), search="NEEDLE"))
    assert (ended.done, ended.examined, world.status(rare)) == (1, 1901, Status.CANCELED)


def test_a_wrong_request_is_refused_at_the_door(world: World) -> None:
    world.task_in(Status.DEAD)
    refused: list[tuple[type[Exception], TaskAction, dict[str, Any], dict[str, Any]]] = [
        (IllegalTransition, BulkRetry(), {"status": "pending"}, {}),
        (InvalidFilter, BulkRetry(), {"status": "'; DROP TABLE tasks; --"}, {}),
        (InvalidFilter, BulkRetry(), {"where": ["1=1"]}, {}),
        (NodeNotFound, BulkMove("nowhere"), {"status": "pending"}, {}),
        (NodeNotFound, BulkRetry(), {"node": "nowhere"}, {}),
        (InvalidFilter, BulkRetry(), {"status": "dead"}, {"digest": "e30"}),
        (InvalidFilter, BulkRetry(), {"status": "dead"}, {"digest": "ä"}),
        (InvalidFilter, BulkRetry(), {"status": "dead"}, {"digest": ""}),
    ]
    digest = world.store.read(preview_bulk, BulkRetry(), {"status": "dead"}).digest
    refused += [
        (InvalidFilter, BulkDelete(), {"status": "dead"}, {"digest": digest}),
        (InvalidFilter, BulkRetry(), {"status": "dead", "queue": "q"}, {"digest": digest}),
    ]
    for error, action, fields, more in refused:
        with pytest.raises(error):
            world.store.run(create_bulk, action, fields, **more)
    assert world.count(bulk_actions) == 0


@pytest.mark.parametrize(
    "values",
    [
        {"filter": "{"},
        {"filter": '{"status": "no such"}'},
        {"filter": '{"unknown": 1}'},
        {"filter": '{"queue": {"a": 1}}'},
        {"filter": '{"where": "id=1"}'},
        {"filter": '{"search": 7}'},
        {"filter": "[]"},
        {"arguments": '{"node": 3}', "action": "move"},
        {"arguments": '{"node": "nowhere"}', "action": "move"},
        {"action": "explode"},
        {"place": "nonsense"},
        {"postponed": "{}"},
    ],
    ids=str,
)
def test_a_row_that_sql_by_hand_has_spoiled_fails_and_harms_nothing(world: World, values: dict[str, str]) -> None:
    dead = world.task_in(Status.DEAD)
    spoiled = create(world, BulkRetry(), status="dead")
    change = sa.update(bulk_actions).where(bulk_actions.c.id == spoiled.id).values(**values)
    world.store.run(lambda connection: connection.execute(change).rowcount)
    chunk(world)
    columns = sa.select(bulk_actions.c.state, bulk_actions.c.error)
    state, error = world.store.read(lambda connection: connection.execute(columns).one())
    assert (state, bool(error), world.status(dead)) == ("failed", True, Status.DEAD)
    world.store.read(list_bulk)
    assert carry_out(world, create(world, BulkRetry(), status="dead")).done == 1


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

    monkeypatch.setattr("peerd.store.tasks.effects.update_tasks", fail)  # behind the rows of the attempts
    result = chunk(world, 2)
    assert result.bulk is not None
    assert (calls, result.bulk.state, result.bulk.done) == ([1], BulkState.FAILED, 2)
    assert result.bulk.error == "ZeroDivisionError: in the middle"
    assert world.count(attempts) == 2
    assert world.store.read(get_bulk, bulk.id).finished_at is not None


def test_bulk_actions_are_listed_newest_first_and_purged_when_they_ended_long_ago(world: World) -> None:
    first, second, third = (create(world, BulkRetry(), status="dead") for _ in range(3))
    assert [bulk.id for bulk in world.store.read(list_bulk)] == [third.id, second.id, first.id]
    assert [bulk.id for bulk in world.store.read(list_bulk, limit=1)] == [third.id]
    carry_out(world, first)
    ended = sa.update(bulk_actions).where(bulk_actions.c.id.in_([first.id, second.id]))
    world.store.run(lambda connection: connection.execute(ended.values(finished_at=seconds_from_now(-100))).rowcount)
    assert world.store.run(purge_bulk, 200.0) == 0
    assert world.store.run(purge_bulk, 50.0) == 1
    assert [bulk.id for bulk in world.store.read(list_bulk, [BulkState.RUNNING])] == [third.id, second.id]


def test_a_key_that_was_taken_meanwhile_is_assigned_to_the_task_that_runs_again(world: World) -> None:
    """Its row has another task, which is gone: then the key is free."""
    task_id = world.task_in(Status.DEAD, unique_key="k")
    world.store.run(assign_key, "q", "k", 10**9)
    assert carry_out(world, create(world, BulkRetry(), status="dead")).done == 1
    assert world.store.run(acquire_key, "q", "k", new_token(), "unfinished") == task_id


def test_an_action_is_encoded_and_decoded_by_its_type() -> None:
    for action, _ in SINGLE.values():
        assert msgspec.convert(msgspec.to_builtins(action), TaskAction) == action
