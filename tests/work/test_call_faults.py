"""Each call of a worker's process and of a manager fails once, loses its reply once, and is refused once.

In every case, every task ends done, no attempt runs twice, and each lease is explained; and a manager does its work.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from datetime import timedelta

import pytest

from peerd import Context, Queue, Status, Task
from peerd.config.settings import ManagerSettings
from peerd.runtime.observability.events import ComponentFailed
from peerd.store.outcomes import database_now
from peerd.store.schema.tables import limit_starts, unique_keys
from peerd.store.schema.types import seconds_from_now
from peerd.store.take.claimer import Claimer
from peerd.testing import Fault, FaultyDatabase, eventually_async, insert_task
from tests.work.harness import RunnerHarness
from tests.work.test_manager import managing, silent_node

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


CHORE_CALLS = (
    ("stage_due", 1),
    ("stage_due", 2),
    ("postpone", 1),
    ("expire", 1),
    ("purge", 1),
    ("purge", 2),
    ("purge", 3),
    ("purge_keys", 1),
    ("purge_limit_starts", 1),
    ("purge_processes", 1),
    ("apply_pinned_policy", 1),
    ("_heartbeat_and_read_due", 1),
    ("rescue_untouched", 1),
    ("deactivate_silent", 1),
)
"""Operations, and the number of the call: each status is staged or purged by a call of its own."""
MANAGER = ManagerSettings(every=0.02, max_update=0.5, max_completed=1800.0, max_failed=1800.0, pinned_policy="move")


def due(harness: RunnerHarness) -> dict[str, Task]:
    """A task for each chore, a key whose period is over, a start that no rate counts, and a node that is silent."""
    database = harness.database
    key = {"queue": "q", "unique_key": "k", "token": 1, "scope": "period", "expires_at": seconds_from_now(-60.0)}
    over = {"queue": "q", "limit_key": "k", "turn": 1, "starts": 1, "counts_until": seconds_from_now(-60.0)}
    database.run(lambda connection: connection.execute(limit_starts.insert().values(over)))
    silent_node(harness, "silent")
    database.run(lambda connection: connection.execute(unique_keys.insert().values(key)))
    long_ago = database.read(database_now) - timedelta(hours=1)
    rows = {status: insert_task(database, status, finished_at=long_ago) for status in ("done", "dead", "canceled")}
    rows["late"] = insert_task(database, "pending", finish_at=long_ago)
    rows["early"] = insert_task(database, "pending", start_at=long_ago + timedelta(hours=2))
    rows["frozen"] = insert_task(database, "working", checked_at=long_ago)
    for status in ("scheduled", "failure"):
        rows[status] = insert_task(database, status, start_at=long_ago)
    return rows


@pytest.mark.parametrize("way", WAYS)
async def test_whatever_fault_a_call_has_a_manager_does_its_work(each_harness: RunnerHarness, way: str) -> None:
    world = each_harness.world
    rows = due(each_harness)
    faults = {(name, call): harm(each_harness.database, way, name, call) for name, call in CHORE_CALLS}
    async with managing(each_harness, MANAGER):
        await eventually_async(lambda: all(fault.hits for fault in faults.values()))

        def all_done() -> bool:
            left = {name: row for name, task in rows.items() if (row := world.find(task.id)) is not None}
            assert {name: row.status for name, row in left.items()} == {
                "early": Status.SCHEDULED,
                "frozen": Status.PENDING,
                "scheduled": Status.PENDING,
                "failure": Status.PENDING,
            }
            return True

        await eventually_async(all_done)
    assert (world.count(unique_keys), world.count(limit_starts)) == (0, 0)
    assert world.outcomes(rows["frozen"].id) == ["rescued"]
    assert world.get(rows["frozen"].id).attempts == 1
    failed = {event.component for event in each_harness.of(ComponentFailed)}
    assert len(failed) == (len(faults) if way == "refused" else 0)
