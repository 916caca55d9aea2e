"""Limited claims of a process beside its other work: when it makes one, and when it does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from peerd import Queue, Status
from peerd.store.schema.tables import limits
from peerd.testing import eventually_async
from peerd.work.attempts import executor_slots
from peerd.work.attempts.executor_slots import PrefetchEstimate
from tests.work.harness import Gates, RunnerHarness


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five tasks are claimed ahead, and wait without a practical limit."""
    monkeypatch.setattr(executor_slots, "MAX_PREFETCH_WAIT", 600.0)
    monkeypatch.setattr(PrefetchEstimate, "prefetch_size", lambda prefetch: 5)
    monkeypatch.setattr(PrefetchEstimate, "reset", lambda prefetch: None)


def limit(harness: RunnerHarness, key: str, **values: Any) -> None:
    row = {"queue": "q", "limit_key": key, **values}
    harness.world.store.run(lambda connection: connection.execute(sa.insert(limits).values(**row)).rowcount)


@pytest.mark.usefixtures("ahead")
async def test_a_process_that_always_claims_ahead_makes_limited_claims_too(each_harness: RunnerHarness) -> None:
    queue, began = Queue("q"), []

    @queue.task
    async def it(key: str = "") -> None:
        began.append(key)
        await asyncio.sleep(0.02)

    for _ in range(150):
        each_harness.world.add(name="it")
    each_harness.run(queue, count=1)
    await eventually_async(lambda: len(began) > 5)
    keyed = [each_harness.world.insert(name="it", limit_key="a", body='{"key": "a"}') for _ in range(2)]
    for task_id in keyed:
        await each_harness.until(task_id, Status.DONE)
    assert began.count("") < 100


@pytest.mark.usefixtures("ahead")
async def test_an_empty_limited_claim_causes_no_busy_loop_while_no_slot_is_free(
    each_harness: RunnerHarness, gates: Gates
) -> None:
    limit(each_harness, "a", running=0)
    each_harness.world.add(name="gated", body='{"key": "beside"}')
    each_harness.world.insert(name="gated", limit_key="a")
    each_harness.run(gates.queue, count=1)
    await eventually_async(lambda: gates.began)
    await asyncio.sleep(0.3)
    before = each_harness.database.calls["claim"]
    await asyncio.sleep(1.0)
    assert each_harness.database.calls["claim"] - before < 60
    gates.open("beside")
