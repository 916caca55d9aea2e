"""Each call that a worker's process makes fails once, loses its reply once, and is refused once.

In every case, every task ends done, no attempt runs twice, and each lease is explained.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter

import pytest

from peerd import Context, Queue, Status
from peerd.store.claim.claimer import Claimer
from peerd.testing import Fault, FaultyDatabase, eventually_async
from tests.work.harness import RunnerHarness

pytestmark = pytest.mark.every_database

OPERATIONS = (
    "claim",
    "complete",
    "record_outcomes",
    "touch",
    "report_progress",
    "claims_of_process",
    "heartbeat_process",
)
WAYS = ("lost", *(pytest.param(way, marks=pytest.mark.slow) for way in ("away", "refused")))


class Rounds:
    """A queue of tasks of which every third fails at first, one that waits for its release, and a record of runs."""

    def __init__(self) -> None:
        self.queue = Queue("q")
        self.runs: Counter[int] = Counter()
        self.may_go_on = asyncio.Event()
        self.queue.task(name="it")(self._run)

    async def _run(self, ctx: Context, stays: bool = False) -> int:  # noqa: FBT001, FBT002
        self.runs[ctx.task.id] += 1
        await ctx.progress(0.5, "half of it")
        if stays:
            await self.may_go_on.wait()
        if ctx.task.id % 3 == 0 and not ctx.task.attempts:
            raise ValueError("at first it fails")
        return ctx.task.id


def harm(database: FaultyDatabase, way: str, operation: str, call: int) -> Fault:
    match way:
        case "away":
            return database.fail(operation, call=call)
        case "lost":
            return database.lose_reply(operation, call=call)
        case _:
            return database.fail(operation, call=call, error=ValueError("no such column"))


@pytest.mark.parametrize("way", WAYS)
async def test_whatever_fault_a_call_has_each_attempt_runs_once(each_harness: RunnerHarness, way: str) -> None:
    rounds, world = Rounds(), each_harness.world
    claimer: Claimer = world.claimer()
    each_harness.run(rounds.queue, claimer, count=4, update=0.05)

    async def all_done(ids: list[int]) -> None:
        def all_are_done() -> bool:
            world.stage_due()
            return all(world.status(task_id) is Status.DONE for task_id in ids)

        await eventually_async(all_are_done)

    for operation, call in itertools.product(OPERATIONS, (1, 2)):
        rounds.may_go_on.clear()
        fault = harm(each_harness.database, way, operation, call)
        ids = [world.add(name="it", body='{"stays": true}')]
        async with asyncio.timeout(60):
            while not fault.hits:
                some = [world.add(name="it") for _ in range(3)]
                await all_done(some)
                ids += some
        rounds.may_go_on.set()
        await all_done(ids)
        for task_id in ids:
            outcomes, task = world.outcomes(task_id), world.get(task_id)
            where = (way, operation, call, task, outcomes)
            assert task.result == str(task_id), where
            assert rounds.runs[task_id] == task.attempts + 1, where
            assert task.lease == len(outcomes) + 1, where
            assert set(outcomes) <= {"failure", "released"}, where
    assert each_harness.uncaught == []
