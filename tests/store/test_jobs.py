"""What is done with jobs that no client holds: counted, listed, limited, and seen."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from peerd.domain.lifecycle import FINISHED, Status
from peerd.domain.limit import Limit
from peerd.domain.task import NewTask
from peerd.store import limits
from peerd.store.jobs import free, reserving, statistics
from peerd.store.jobs.holding import Bury
from peerd.store.jobs.statistics import JobState
from peerd.store.schema.tables import nodes
from peerd.store.schema.types import seconds_from_now
from tests.store.job_steps import TTR, UINT32, bury, delete, put, put_all, reserve, reserved_ids
from tests.store.world import World

pytestmark = pytest.mark.every_database


def limit(world: World, queue: str, key: str = "", **fields: Any) -> None:
    world.run(limits.set_limit, Limit(queue=queue, key=key, **fields))


def test_a_limit_of_a_tube_holds_for_reservations_which_count_as_running(world: World) -> None:
    ids = [put(world) for _ in range(4)]
    limit(world, "q", running=2)
    claimer = world.claimer("q")
    first = reserve(world, claimer, 9)
    assert [job.id for job in first] == ids[:2]
    assert reserve(world, claimer, 9) == []
    assert world.take(world.claimer("q")) == []
    assert world.run_group(reserving.reserve_by_id, claimer, ids[3], TTR) is None
    delete(world, claimer, first[0].claim)
    assert world.run_group(reserving.reserve_by_id, claimer, ids[3], TTR) is not None
    assert reserve(world, claimer, 9) == []


def test_jobs_with_limit_keys_are_reserved_within_their_limits_and_by_priority(world: World) -> None:
    limit(world, "q", "*", running=1)
    keyed = [put(world, pri=1, limit_key="a"), put(world, pri=1, limit_key="a"), put(world, pri=3, limit_key="b")]
    plain = [put(world, pri=0), put(world, pri=2), put(world, "other", pri=4)]
    claimer = world.claimer("q", "other")
    assert reserved_ids(world, claimer, 9) == [plain[0], keyed[0], plain[1], keyed[2], plain[2]]
    assert reserve(world, claimer, 9) == []


def test_counts_of_a_tube_and_of_all(world: World) -> None:
    for pri in (0, 1023, 1024, UINT32):
        put(world, pri=pri)
    put(world, limit_key="k")
    put(world, delay=60)
    world.task_in(Status.FAILURE)
    put(world, "other")
    claimer = world.claimer("q")
    first, second = reserve(world, claimer, 2)
    bury(world, claimer, Bury(second.claim, None, 1))
    for status in FINISHED:
        world.task_in(status)
    counts = world.read(statistics.count_jobs, "q")
    assert counts == statistics.TubeCounts(urgent=counts.urgent, ready=3, reserved=1, delayed=2, buried=1)
    assert counts.urgent + sum(65_536 - job.priority < 1024 for job in (first, second)) == 3
    everything = world.read(statistics.count_jobs, None)
    assert everything == statistics.TubeCounts(urgent=counts.urgent + 1, ready=4, reserved=1, delayed=2, buried=1)
    assert world.read(statistics.count_jobs, "empty") == statistics.TubeCounts()


def test_the_tubes_with_jobs_are_listed_oldest_first_however_many(world: World) -> None:
    order = ["z", "a", "held", "delayed", "buried", "m"]
    for tube in order:
        put(world, tube, delay=60 if tube == "delayed" else 0)
    claimer = world.claimer("held", "buried")
    found = {job.queue: job.claim for job in reserve(world, claimer, 2)}
    bury(world, claimer, Bury(found["buried"], None, 1))
    world.insert(queue="done", status="done")
    assert world.read(statistics.tubes_with_jobs) == order
    assert [tube for tube in (*order, "done", "empty") if world.read(statistics.has_jobs, tube)] == order
    world.empty()
    tubes = [f"t{number}" for number in range(450)]  # more than one statement steps through
    put_all(world, [NewTask(queue=tube, ttr=1) for tube in tubes])
    assert world.read(statistics.tubes_with_jobs) == tubes
    put_all(world, [NewTask(queue="q", ttr=1, delay=60) for _ in range(1203)])
    assert [world.run_group(free.kick, "q", 1100) for _ in range(2)] == [1100, 103], "more than one statement writes"


def test_the_figures_of_a_job(world: World) -> None:
    job_id = put(world, pri=7, ttr=11, delay=0)
    world.set(job_id, created_at=seconds_from_now(-100))
    found = world.read(statistics.job_statistics, job_id)
    assert found is not None
    assert (found.queue, found.state, found.priority, found.ttr) == ("q", JobState.READY, 65_529, 11)
    assert (found.delay, found.time_left, found.reserves, found.kicks) == (0, 0, 0, 0)
    assert 100 <= found.age < 110
    assert world.read(statistics.job_statistics, job_id + 1) is None
    assert world.read(statistics.job_statistics, 2**64 - 1) is None


def test_the_next_job_is_seen_on_a_cluster_of_many_nodes(world: World) -> None:
    rows = [{"name": f"n{number}", "incarnation": "x", "active": False} for number in range(300)]
    world.execute(sa.insert(nodes), rows)
    job_id = put(world, pri=5, node="n299")
    found = world.read(statistics.peek_ready, "q")
    assert found is not None
    assert found.id == job_id


def test_the_next_job_of_each_kind_is_seen_whether_the_tube_is_paused_or_not(world: World) -> None:
    def seen() -> list[int | None]:
        found = [
            world.read(look, "q") for look in (statistics.peek_ready, statistics.peek_delayed, statistics.peek_buried)
        ]
        return [job and job.id for job in found]

    assert seen() == [None, None, None]
    world.node("b")
    put(world, pri=2)
    elsewhere = put(world, pri=1, node="b")
    buried = [world.task_in(Status.BURIED) for _ in range(3)]
    for job_id, order in zip(buried, (2, 1, 3), strict=True):
        world.set(job_id, buried_order=order)
    _, soon, _ = (put(world, delay=delay) for delay in (200, 100, 300))
    world.run_group(free.pause_tube, "q", 60)
    assert seen() == [elsewhere, soon, buried[1]]
    keyed = put(world, pri=0, limit_key="k")
    assert seen() == [keyed, soon, buried[1]]
    assert world.read(statistics.peek, world.insert(status="done")) is None
