"""A bulk action does to each task what the action on one task does, unique keys included."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from peerd.domain.bulk import (
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
from peerd.domain.errors import UniqueKeyTaken
from peerd.domain.lifecycle import IllegalTransition, Status, sources
from peerd.domain.task import Task
from peerd.store.schema.tables import unique_keys
from peerd.store.schema.types import seconds_from_now
from peerd.store.statements import new_token
from peerd.store.tasks.actions import act_on_task
from peerd.store.unique_keys import acquire_key
from tests.store.bulk_steps import carry_out, create
from tests.store.world import World

ACTIONS: tuple[TaskAction, ...] = (
    BulkRetry(),
    BulkCancel("enough"),
    BulkDelete(),
    BulkSnooze(600.0),
    BulkMove("a"),
    BulkMove(None),
    BulkMoveToQueue("r"),
    BulkChange(priority=7),
    BulkChange(body="[1]"),
    BulkBury(),
    BulkKick(),
)
OWN = {"id", "unique_key", "worker_started_at", "checked_at", "created_at", "updated_at"}
OWN |= {"finished_at", "start_at", "finish_at", "bulk_id"}
"""Columns that differ between two tasks to which the same has happened, or that are a moment of the action."""


def test_each_action_does_to_a_task_of_each_status_what_the_action_on_one_task_does(world: World) -> None:
    for action in ACTIONS:
        assert msgspec.convert(msgspec.to_builtins(action), TaskAction) == action
        world.empty()
        world.node("a")
        assert_effects_are_the_same(world, action)


def assert_effects_are_the_same(world: World, action: TaskAction) -> None:
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
            world.run(act_on_task, one, action)
            done = world.find(other)
            assert done is None or done.bulk_id == bulk.id, (action, status)
        else:
            with pytest.raises(IllegalTransition):
                world.run(act_on_task, one, action)
        assert comparable(world, one) == comparable(world, other), (action, status)
    assert (bulk.state, bulk.done) == (BulkState.DONE, len(sources(event_of(action)))), ours
    assert (bulk.skipped, bulk.failed, bulk.error) == (0, 0, None)
    assert key_rows(world, 0) == key_rows(world, 1)


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


def key_rows(world: World, number: int) -> list[tuple[str, str, str, bool]]:
    """The unique keys of the tasks that were acted on singly, or in bulk."""
    columns = (unique_keys.c.queue, unique_keys.c.unique_key, unique_keys.c.scope, unique_keys.c.task_id)
    rows = world.rows(sa.select(*columns))
    mine = [row for row in rows if row.unique_key.endswith(str(number))]
    return sorted((row.queue, row.unique_key.split()[0], row.scope, row.task_id is None) for row in mine)


def test_a_unique_key_that_a_younger_task_has_is_refused_and_reported(world: World) -> None:
    old = world.task_in(Status.DEAD, unique_key="k")
    younger = world.add(unique_key="k")
    twice = [world.task_in(Status.DEAD, unique_key="twice") for _ in range(2)]
    others = [world.task_in(Status.DEAD, unique_key=f"own {number}") for number in range(3)]
    kept = world.task_in(Status.DEAD, unique_key="for ever", unique_for="forever")
    world.execute(sa.delete(unique_keys).where(unique_keys.c.task_id == others[0]))
    ended = carry_out(world, create(world, BulkRetry(), status="dead"))
    assert (ended.done, ended.failed) == (5, 2)
    errors = {one.task: one.error for one in ended.errors}
    assert errors[old] == str(UniqueKeyTaken(old, "k", younger))
    assert sorted(world.status(task_id) for task_id in twice) == [Status.DEAD, Status.PENDING], "one of them has it"
    for task_id in (*others, kept):
        assert world.status(task_id) is Status.PENDING
        key = world.get(task_id).unique_key
        assert key is not None
        assert world.run(acquire_key, "q", key, new_token(), "unfinished") == task_id


def test_tasks_with_keys_are_put_into_another_queue_with_them(world: World) -> None:
    free, taken = (world.add(unique_key=key) for key in ("free", "taken"))
    holder = world.add("r", unique_key="taken")
    there = world.add("r")
    ended = carry_out(world, create(world, BulkMoveToQueue("r"), where=["queue!=s"]))
    assert (ended.done, ended.failed) == (3, 1)
    assert [world.get(task_id).queue for task_id in (free, taken, holder, there)] == ["r", "q", "r", "r"]
    assert world.run(acquire_key, "r", "free", new_token(), "unfinished") == free
