"""Bulk actions by a manager: begun, paused, resumed, canceled, beside its other duties."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from peerd.domain.bulk import BulkAction, BulkCancel, BulkRetry
from peerd.domain.lifecycle import Status
from peerd.domain.ring import ClaimRevoked, TasksAvailable
from peerd.doorbell.ringing import DoorbellEventListener
from peerd.runtime.observability.events import BulkActionEnded, BulkActionStarted, BulkChunkDone
from peerd.runtime.observability.log_messages import log_message_of
from peerd.store.bulk import create_bulk
from peerd.store.schema.tables import tasks
from peerd.testing import eventually_async
from tests.work.harness import RunnerHarness
from tests.work.test_manager import managing, settings

QUICK: dict[str, Any] = {"every": 0.02, "batch": 2}

pytestmark = pytest.mark.one_database


def dead(harness: RunnerHarness, number: int) -> None:
    rows = [{"queue": "old", "status": "dead"}] * number
    harness.database.run(lambda connection: connection.execute(sa.insert(tasks), rows).rowcount)


def create(harness: RunnerHarness, action: Any, **fields: Any) -> BulkAction:
    return harness.database.run(create_bulk, action, fields)


async def test_its_beginning_its_chunks_and_its_end_are_events_and_ring(harness: RunnerHarness) -> None:
    world = harness.world
    running = world.task_in(Status.WORKING)
    strange = world.insert(queue="no queue has such a name", status="dead")
    bulk = create(harness, BulkRetry(), where=[f"id>={running}"])
    async with managing(harness, settings(**QUICK)):
        await eventually_async(lambda: harness.events.of(BulkActionEnded))
    [began], [ended] = harness.events.of(BulkActionStarted), harness.events.of(BulkActionEnded)
    assert (began.bulk_id, began.matched, began.at_least) == (bulk.id, 2, False)
    assert (ended.state, ended.done, ended.error) == ("done", 2, None)
    assert [event.revoked for event in harness.events.of(BulkChunkDone)] == [(running,)]
    assert world.status(strange) is Status.PENDING
    rung: list[object] = []
    for event in harness.events.of(BulkChunkDone):
        DoorbellEventListener(rung.append)(event)
    assert rung == [ClaimRevoked((running,)), TasksAvailable(("q",))]
    level, sentence, figures = log_message_of(ended)
    assert (level, sentence, figures["done"]) == ("info", "a bulk action is done", 2)
    assert log_message_of(began)[1:] == ("a bulk action began", {"bulk": bulk.id, "action": "retry", "tasks": 2})


async def test_one_that_fails_is_reported_once_and_keeps_the_manager_from_nothing(
    harness: RunnerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead(harness, 3)
    bulk = create(harness, BulkRetry(), status="dead")
    good = create(harness, BulkCancel(), where=["id=-1"])

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("in the middle")

    monkeypatch.setattr("peerd.store.tasks.actions.update_tasks", fail)
    async with managing(harness, settings(**QUICK)):
        await eventually_async(lambda: len(harness.events.of(BulkActionEnded)) == 2)
    states = {event.bulk_id: (event.state, event.error) for event in harness.events.of(BulkActionEnded)}
    assert states == {bulk.id: ("failed", "ZeroDivisionError: in the middle"), good.id: ("done", None)}
    failed = next(event for event in harness.events.of(BulkActionEnded) if event.error)
    assert log_message_of(failed)[0] == "error"
