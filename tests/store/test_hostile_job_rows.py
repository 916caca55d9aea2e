"""Rows that SQL by hand has written, and that no library would write, keep no queue client from its jobs."""

from __future__ import annotations

from functools import partial

import pytest
import sqlalchemy as sa

from peerd.domain.lifecycle import Status
from peerd.store import jobs
from peerd.store.claim.claimer import Claimer
from peerd.store.jobs import Bury, Release
from tests.store.job_steps import bury, put, release, reserve
from tests.store.world import World

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


@pytest.mark.parametrize("hostile", [*EVERYWHERE, *OF_SQLITE])
def test_a_job_that_no_library_would_write_keeps_no_other_from_being_reserved(world: World, hostile: str) -> None:
    odd, good = put(world, pri=0), put(world, pri=1)
    if hostile in OF_SQLITE and world.store.name != "sqlite":
        with pytest.raises(sa.exc.DBAPIError):
            change(world, odd, OF_SQLITE[hostile])
    else:
        change(world, odd, EVERYWHERE.get(hostile) or OF_SQLITE[hostile])
    claimer = world.claimer("q")
    held = {job.id: job.claim for job in reserve(world, claimer, 2)}
    assert set(held) == {odd, good}
    both = list(held.values())
    assert world.run_group(jobs.touch_reservations, claimer.process_id, both) == set(both)
    assert release(world, claimer, *(Release(claim, 0, 0, "timeouts") for claim in both)) == set(both)
    both = [job.claim for job in reserve(world, claimer, 2)]
    assert bury(world, claimer, *(Bury(claim, 0, place) for place, claim in enumerate(both))) == set(both)
    assert world.run_group(jobs.kick, "q", 5) == 2
    assert {job.id for job in reserve(world, claimer, 2)} == {odd, good}


@pytest.mark.parametrize("hostile", EVERYWHERE)
def test_a_job_that_no_library_would_write_is_shown_taken_and_deleted(world: World, hostile: str) -> None:
    odd = put(world)
    change(world, odd, EVERYWHERE[hostile])
    assert world.read(jobs.job_statistics, odd) is not None
    claimer = world.claimer("q")
    [job] = world.run_group(partial(take_one, job_id=odd), claimer)
    assert job == odd
    world.run(jobs.release_all, claimer.node_id)
    assert world.status(odd) is Status.PENDING
    assert world.run_group(jobs.delete_free, [odd])


def change(world: World, task_id: int, values: str) -> None:
    """What a person's own SQL may do."""
    world.execute(sa.text(f"UPDATE tasks SET {values} WHERE id = {task_id}"))


def take_one(connection: sa.Connection, claimer: Claimer, *, job_id: int) -> list[int]:
    taken = jobs.take(connection, claimer, job_id, 60)
    return [] if taken is None else [taken.id]
