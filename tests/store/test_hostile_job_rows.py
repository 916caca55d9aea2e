"""Rows that SQL by hand has written, and that no library would write, keep no queue client from its jobs."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from peerd.domain.lifecycle import Status
from peerd.store import jobs
from peerd.store.jobs import Bury, Release
from tests.store.job_steps import bury, put, release, reserve
from tests.store.world import World

pytestmark = pytest.mark.every_database

SMALLEST_INTEGER = -(2**31)
LARGEST_INTEGER = 2**31 - 1
COUNTERS = ("reserves", "timeouts", "releases", "buries", "kicks")
EVERYWHERE = {
    "counters that are full": ", ".join(f"{name} = {LARGEST_INTEGER}" for name in COUNTERS),
    "counters below zero": ", ".join(f"{name} = {SMALLEST_INTEGER}" for name in COUNTERS),
    "the longest ttr": "ttr = 9223372036854775807",
    "the shortest ttr": "ttr = -9223372036854775807",
    "a ttr of ten thousand years": f"ttr = {10_000 * 365 * 86_400}",
    "no ttr": "ttr = NULL",
    "the last lease": "lease = 9223372036854775807",
    "the largest priority": "priority = 9223372036854775807",
    "the last place among the buried": "buried_order = 9223372036854775807",
}
OF_SQLITE = {
    "a ttr that is text": "ttr = 'soon'",
    "counters that are text": ", ".join(f"{name} = 'many'" for name in COUNTERS),
    "an endless ttr": "ttr = 9e999",
}


def test_a_job_that_no_library_would_write_is_treated_like_any_other_and_keeps_no_other_from_clients(
    world: World,
) -> None:
    for name, values in (EVERYWHERE | OF_SQLITE).items():
        world.empty()
        odd, good = put(world, pri=0), put(world, pri=1)
        text = f"UPDATE tasks SET {values} WHERE id = {odd}"
        if name in OF_SQLITE and world.store.name != "sqlite":
            with pytest.raises(sa.exc.DBAPIError):
                world.sql(text)
            continue
        world.sql(text)
        claimer = world.claimer("q")
        held = {job.id: job.claim for job in reserve(world, claimer, 2)}
        assert set(held) == {odd, good}, name
        both = list(held.values())
        assert world.run_group(jobs.touch_reservations, claimer.process_id, both) == set(both), name
        assert release(world, claimer, *(Release(claim, 0, 0, "timeouts") for claim in both)) == set(both), name
        both = [job.claim for job in reserve(world, claimer, 2)]
        assert bury(world, claimer, *(Bury(claim, 0, place) for place, claim in enumerate(both))) == set(both), name
        assert world.run_group(jobs.kick, "q", 5) == 2, name
        assert {job.id for job in reserve(world, claimer, 2)} == {odd, good}, name
        if name in EVERYWHERE:
            world.run(jobs.release_all, claimer.node_id)
            assert world.read(jobs.job_statistics, odd) is not None, name
            taken = world.run_group(jobs.take, claimer, odd, 60)
            assert (taken and taken.id) == odd, name
            world.run(jobs.release_all, claimer.node_id)
            assert world.status(odd) is Status.PENDING, name
            assert world.run_group(jobs.delete_free, [odd]), name
