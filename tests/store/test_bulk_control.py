"""The rows of bulk actions: made, paused, resumed, canceled, spoiled, listed and purged."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from peerd.domain.bulk import BulkCancel, BulkDelete, BulkMove, BulkRetry, BulkState, TaskAction
from peerd.domain.errors import BulkActionHasEnded, BulkActionNotFound, InvalidFilter, NodeNotFound
from peerd.domain.lifecycle import IllegalTransition, Status
from peerd.store.bulk.chunks import carry_out_chunk
from peerd.store.bulk.creating import create_bulk
from peerd.store.bulk.rows import cancel_bulk, get_bulk, list_bulk, pause_bulk, purge_bulk, resume_bulk
from peerd.store.bulk.selection import preview_bulk
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import attempts, bulk_actions
from tests.store.bulk_steps import carry_out, chunk, create
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

    monkeypatch.setattr("peerd.store.tasks.effects.update_tasks", fail)  # behind the rows of the attempts
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
    assert [bulk.id for bulk in world.read(list_bulk, [BulkState.RUNNING])] == [third.id, second.id]
