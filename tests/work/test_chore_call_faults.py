"""Each call that a manager makes fails, loses its reply, and is refused once; its work is done nevertheless."""

from __future__ import annotations

from datetime import timedelta

import pytest

from peerd import Status, Task
from peerd.config.settings import ManagerSettings
from peerd.runtime.observability.events import ComponentFailed
from peerd.store.outcomes.recording import database_now
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import limit_starts, unique_keys
from peerd.testing import eventually_async, insert_task
from tests.work.harness import RunnerHarness
from tests.work.test_manager import managing, silent_node
from tests.work.test_worker_call_faults import WAYS, harm

pytestmark = pytest.mark.every_database

CALLS = (
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
PERIODS = ManagerSettings(every=0.02, max_update=0.5, max_completed=1800.0, max_failed=1800.0, pinned_policy="move")


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
    faults = {(name, call): harm(each_harness.database, way, name, call) for name, call in CALLS}
    async with managing(each_harness, PERIODS):
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
