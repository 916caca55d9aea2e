"""What is done with jobs that no client holds: put and kicked, counted, and seen by people."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from peerd.domain.lifecycle import FINISHED, Status
from peerd.domain.limit import Limit
from peerd.domain.task import NewTask
from peerd.store import jobs
from peerd.store.jobs import Bury, JobState
from peerd.store.limits import definitions
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.tasks import actions
from tests.store.job_steps import TTR, UINT32, bury, delete, put, put_all, reserve, reserve_one, reserved_ids, state
from tests.store.world import World

pytestmark = pytest.mark.every_database

# ---------------------------------------------------------------- kick


def test_buried_jobs_are_kicked_in_the_order_in_which_they_were_buried_and_before_delayed_ones(world: World) -> None:
    ids = [put(world) for _ in range(4)]
    delayed = put(world, delay=60)
    claimer = world.claimer("q")
    held = {job.id: job.claim for job in reserve(world, claimer, 4)}
    burial = [ids[2], ids[0], ids[3], ids[1]]
    bury(world, claimer, *(Bury(held[job_id], None, order) for order, job_id in enumerate(burial)))
    found = world.read(jobs.peek_buried, "q")
    assert found is not None
    assert found.id == ids[2]
    assert world.run_group(jobs.kick, "q", 3) == 3
    assert [state(world, job_id) for job_id in burial] == [JobState.READY] * 3 + [JobState.BURIED]
    assert world.run_group(jobs.kick, "q", UINT32) == 1
    assert state(world, delayed) is JobState.DELAYED
    assert world.run_group(jobs.kick, "q", UINT32) == 1
    assert state(world, delayed) is JobState.READY
    assert world.run_group(jobs.kick, "q", UINT32) == 0
    assert reserved_ids(world, claimer, 9) == [*ids, delayed]


def test_delayed_jobs_are_kicked_soonest_first(world: World) -> None:
    later, soon, latest = put(world, delay=200), put(world, delay=100), put(world, delay=300)
    failed = world.task_in(Status.FAILURE)
    found = world.read(jobs.peek_delayed, "q")
    assert found is not None
    assert found.id == soon
    assert world.run_group(jobs.kick, "q", 1) == 1
    assert state(world, soon) is JobState.READY
    assert world.run_group(jobs.kick, "q", 2) == 2
    assert [state(world, job_id) for job_id in (later, latest, failed)] == [
        JobState.READY,
        JobState.READY,
        JobState.DELAYED,
    ]


def test_a_job_is_kicked_by_its_id_if_it_is_buried_or_delayed(world: World) -> None:
    for status in Status:
        job_id = world.task_in(status)
        kicked = world.run_group(jobs.kick_job, job_id)
        assert (kicked == "q") == (status in (Status.BURIED, Status.SCHEDULED, Status.FAILURE)), status
        assert world.status(job_id) is (Status.PENDING if kicked else status)
        world.empty()
    assert world.run_group(jobs.kick_job, 2**64 - 1) is None


# ---------------------------------------------------------------- unique keys, limits


def test_a_put_with_a_key_that_is_taken_names_the_job_that_has_it(world: World) -> None:
    new = [NewTask(queue="q", unique_key=key, ttr=1) for key in ("a", "b", "a")]
    results = world.run_group(jobs.put, [*new, new[0]])
    assert [one.created for one in results] == [True, True, False, False]
    assert {one.id for one in results[2:]} == {results[0].id}


def limit(world: World, queue: str, key: str = "", **fields: Any) -> None:
    world.run(definitions.set_limit, Limit(queue=queue, key=key, **fields))


def test_a_limit_of_a_tube_holds_for_reservations_which_count_as_running(world: World) -> None:
    ids = [put(world) for _ in range(4)]
    limit(world, "q", running=2)
    claimer = world.claimer("q")
    first = reserve(world, claimer, 9)
    assert [job.id for job in first] == ids[:2]
    assert reserve(world, claimer, 9) == []
    assert world.take(world.claimer("q")) == []
    assert world.run_group(jobs.take, claimer, ids[3], TTR) is None
    delete(world, claimer, first[0].claim)
    assert world.run_group(jobs.take, claimer, ids[3], TTR) is not None
    assert reserve(world, claimer, 9) == []


def test_jobs_with_limit_keys_are_reserved_within_their_limits_and_by_priority(world: World) -> None:
    limit(world, "q", "*", running=1)
    keyed = [put(world, pri=1, limit_key="a"), put(world, pri=1, limit_key="a"), put(world, pri=3, limit_key="b")]
    plain = [put(world, pri=0), put(world, pri=2), put(world, "other", pri=4)]
    claimer = world.claimer("q", "other")
    assert reserved_ids(world, claimer, 9) == [plain[0], keyed[0], plain[1], keyed[2], plain[2]]
    assert reserve(world, claimer, 9) == []


# ---------------------------------------------------------------- statistics


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
    counts = world.read(jobs.tube_counts, "q")
    assert counts == jobs.TubeCounts(urgent=counts.urgent, ready=3, reserved=1, delayed=2, buried=1)
    assert counts.urgent + sum(65_536 - job.priority < 1024 for job in (first, second)) == 3
    everything = world.read(jobs.cluster_counts)
    assert everything == jobs.TubeCounts(urgent=counts.urgent + 1, ready=4, reserved=1, delayed=2, buried=1)
    assert world.read(jobs.tube_counts, "empty") == jobs.TubeCounts()


def test_the_tubes_with_jobs_are_listed_oldest_first_however_many(world: World) -> None:
    order = ["z", "a", "held", "delayed", "buried", "m"]
    for tube in order:
        put(world, tube, delay=60 if tube == "delayed" else 0)
    claimer = world.claimer("held", "buried")
    found = {job.queue: job.claim for job in reserve(world, claimer, 2)}
    bury(world, claimer, Bury(found["buried"], None, 1))
    world.insert(queue="done", status="done")
    assert world.read(jobs.tubes_with_jobs) == order
    assert [tube for tube in (*order, "done", "empty") if world.read(jobs.has_jobs, tube)] == order
    world.empty()
    tubes = [f"t{number}" for number in range(450)]  # more than one statement steps through
    put_all(world, [NewTask(queue=tube, ttr=1) for tube in tubes])
    assert world.read(jobs.tubes_with_jobs) == tubes
    put_all(world, [NewTask(queue="q", ttr=1, delay=60) for _ in range(1203)])
    assert [world.run_group(jobs.kick, "q", 1100) for _ in range(2)] == [1100, 103], "more than one statement writes"


def test_the_figures_of_a_job(world: World) -> None:
    job_id = put(world, pri=7, ttr=11, delay=0)
    world.set(job_id, created_at=seconds_from_now(-100))
    found = world.read(jobs.job_statistics, job_id)
    assert found is not None
    assert (found.queue, found.state, found.priority, found.ttr) == ("q", JobState.READY, 65_529, 11)
    assert (found.delay, found.time_left, found.reserves, found.kicks) == (0, 0, 0, 0)
    assert 100 <= found.age < 110
    assert world.read(jobs.job_statistics, job_id + 1) is None
    assert world.read(jobs.job_statistics, 2**64 - 1) is None


def test_the_next_job_is_seen_whether_the_tube_is_paused_or_not(world: World) -> None:
    world.node("b")
    put(world, pri=2)
    elsewhere = put(world, pri=1, node="b")
    world.run_group(jobs.pause_tube, "q", 60)
    found = world.read(jobs.peek_ready, "q")
    assert found is not None
    assert found.id == elsewhere
    keyed = put(world, pri=0, limit_key="k")
    found = world.read(jobs.peek_ready, "q")
    assert found is not None
    assert found.id == keyed
    for look in (jobs.peek_ready, jobs.peek_delayed, jobs.peek_buried):
        assert world.read(look, "empty") is None
    done = world.insert(status="done")
    assert world.read(jobs.peek, done) is None


# ---------------------------------------------------------------- people


def test_what_a_user_does_to_a_reserved_job_ends_the_reservation(world: World) -> None:
    for action in (actions.cancel, actions.retry, partial(actions.move, node=None), actions.delete):
        put(world)
        claimer = world.claimer("q")
        job = reserve_one(world, claimer)
        world.run(action, job.id)
        assert delete(world, claimer, job.claim) == set()
        task = world.find(job.id)
        assert task is None or (task.deadline_at is None and task.status is not Status.WORKING)
        if task is not None:
            world.run(actions.delete, job.id)
