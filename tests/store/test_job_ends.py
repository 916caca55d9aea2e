"""How reservations end: deleted, released, buried or touched by their holder, and by no other."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from peerd.domain.lifecycle import Status
from peerd.domain.task import LARGEST_CLIENT_SECONDS, NewTask
from peerd.store import jobs
from peerd.store.claim.claimer import Claimer
from peerd.store.jobs import Bury, JobState, Release, outcomes
from peerd.store.jobs.outcomes import RecordedFailure
from peerd.store.jobs.types import ReservedJob
from peerd.store.outcomes.recording import ClaimId
from peerd.store.schema.tables import attempts, tasks, unique_keys
from tests.store.job_steps import TTR, bury, delete, put, put_all, release, reserve, reserve_one, reserved_ids, state
from tests.store.world import World, at_once

pytestmark = pytest.mark.every_database

# ---------------------------------------------------------------- fencing


def test_only_the_holder_of_a_reservation_can_end_it(world: World) -> None:
    for number in (1, 3):
        for _ in range(number):
            put(world)
        claimer, other = world.claimer("q"), world.claimer("q")
        held = [job.claim for job in reserve(world, claimer, number)]
        old = [ClaimId(claim.id, claim.lease - 1) for claim in held]
        assert len(held) == number
        for stranger, claims in ((other, held), (claimer, old)):
            assert delete(world, stranger, *claims) == set()
            assert release(world, stranger, *map(Release, claims)) == set()
            assert bury(world, stranger, *(Bury(claim, None, 1) for claim in claims)) == set()
            assert world.run_group(jobs.touch_reservations, stranger.process_id, claims) == set()
        assert all(world.get(claim.id).lease == claim.lease for claim in held)
        assert delete(world, claimer, *held) == set(held)
        assert world.count() == 0


def test_of_many_writes_those_that_were_still_held_are_named(world: World) -> None:
    for _ in range(6):
        put(world)
    claimer = world.claimer("q")
    held = [job.claim for job in reserve(world, claimer, 6)]
    assert delete(world, claimer, held[0], held[1]) == {held[0], held[1]}
    assert release(world, claimer, *map(Release, held[:4])) == {held[2], held[3]}
    assert delete(world, claimer, *held) == {held[4], held[5]}
    assert release(world, claimer, *map(Release, held)) == set()
    again = [job.claim for job in reserve(world, claimer, 9)]
    put(world)
    again += [job.claim for job in reserve(world, claimer, 9)]
    assert [claim.lease for claim in again] == [2, 2, 1]
    assert delete(world, claimer, *again) == set(again), "of different leases"


def test_two_processes_never_reserve_the_same_job(world: World) -> None:
    put_all(world, [NewTask(queue="q", ttr=1) for _ in range(60)])
    claimers = [world.claimer("q") for _ in range(4)]

    def drain(claimer: Claimer) -> list[int]:
        found: list[int] = []
        while some := reserved_ids(world, claimer, 3):
            found += some
        return found

    found = [job_id for ids in at_once([partial(drain, claimer) for claimer in claimers]) for job_id in ids]
    assert len(found) == len(set(found))
    rest = reserved_ids(world, world.claimer("q"), 100)
    assert len(found) + len(rest) == 60


@pytest.mark.parametrize("store", ["mariadb", "postgresql"], indirect=True)
def test_jobs_that_another_session_has_locked_are_left_out(world: World) -> None:
    ids = put_all(world, [NewTask(queue="q", ttr=1) for _ in range(50)])
    claimer = world.claimer("q")
    with world.locking(tasks, *ids[:30]):
        found = [*reserved_ids(world, claimer, 1), *reserved_ids(world, claimer, 9)]
        assert len(found) == 10
        assert set(found) <= set(ids[30:])
        assert len(reserved_ids(world, claimer, 50)) == 10
        assert reserve(world, claimer) == []
    assert reserved_ids(world, claimer, 50) == ids[:30]


# ---------------------------------------------------------------- the ends of a reservation


def test_each_end_raises_its_own_counters(world: World) -> None:
    job_id = put(world)
    claimer = world.claimer("q")

    came_back: list[tuple[int, int]] = []

    def next_claim() -> ClaimId:
        job = reserve_one(world, claimer)
        came_back.append((job.releases, job.timeouts))
        return job.claim

    release(world, claimer, Release(next_claim(), 1, 0, "releases"))
    release(world, claimer, Release(next_claim(), None, None, "timeouts"))
    release(world, claimer, Release(next_claim(), None, None, None))
    bury(world, claimer, Bury(next_claim(), 7, 1))
    assert world.run_group(jobs.kick_job, job_id) == "q"
    bury(world, claimer, Bury(next_claim(), None, 2, "timeouts"))
    found = world.read(jobs.job_statistics, job_id)
    assert found is not None
    assert (found.reserves, found.timeouts, found.releases, found.buries, found.kicks) == (5, 2, 1, 2, 1)
    assert (found.state, found.priority) == (JobState.BURIED, 7)
    assert came_back == [(0, 0), (1, 0), (1, 1), (1, 1), (1, 1)]
    assert world.attempts(job_id) == []
    assert world.get(job_id).attempts == 0


def test_a_release_with_a_delay_makes_the_job_wait_and_one_without_keeps_the_delay_shown(world: World) -> None:
    job_id = put(world, delay=0)
    claimer = world.claimer("q")
    release(world, claimer, Release(reserve_one(world, claimer).claim, 5, 100, "releases"))
    found = world.read(jobs.job_statistics, job_id)
    assert found is not None
    assert (found.state, found.delay, found.priority) == (JobState.DELAYED, 100, 5)
    assert 98 <= found.time_left <= 100
    job = world.run_group(jobs.take, claimer, job_id, TTR)
    assert job is not None
    release(world, claimer, Release(job.claim, None, None, "timeouts"))
    found = world.read(jobs.job_statistics, job_id)
    assert found is not None
    assert (found.state, found.delay, found.time_left) == (JobState.READY, 100, 0)


def test_a_deleted_job_takes_its_attempts_and_its_key_with_it(world: World) -> None:
    keyed = put(world, unique_key="once")
    world.fail(world.take_one())
    world.stage_due()
    claimer = world.claimer("q")
    job = reserve_one(world, claimer)
    assert (job.id, job.unique_key, job.has_attempts) == (keyed, "once", True)
    assert delete(world, claimer, job.claim) == {job.claim}
    assert (world.count(), world.count(attempts), world.count(unique_keys)) == (0, 0, 0)


def test_a_job_whose_queue_keeps_history_is_done(world: World) -> None:
    kept, gone = put(world), put(world)
    claimer = world.claimer("q")
    held = [job.claim for job in reserve(world, claimer, 2)]
    assert delete(world, claimer, *held, keep=frozenset(held[:1])) == set(held)
    assert delete(world, world.claimer("q"), *held, keep=frozenset(held[:1])) == set()
    assert world.status(kept) is Status.DONE
    assert world.get(kept).deadline_at is None
    assert world.find(gone) is None
    assert state(world, kept) is None


def test_release_all_ends_the_reservations_of_a_node_and_no_claims(world: World) -> None:
    ids = [put(world) for _ in range(3)]
    gateway, other = world.claimer("q"), world.claimer("q", node="other")
    assert len(reserve(world, gateway, 2)) == 2
    kept = reserve_one(world, other)
    claimed = world.add("w")
    world.take_one(msgspec.structs.replace(gateway, queues=("w",)))
    assert world.run(jobs.release_all, gateway.node_id) == 2
    assert [state(world, job_id) for job_id in ids] == [JobState.READY, JobState.READY, JobState.RESERVED]
    assert kept.id == ids[2]
    assert world.status(claimed) is Status.WORKING
    assert reserved_ids(world, gateway, 5) == ids[:2]


@pytest.fixture
def claimer(world: World) -> Claimer:
    return world.claimer("q")


def put_and_reserve(world: World, claimer: Claimer, **fields: Any) -> ReservedJob:
    put(world, **fields)
    return reserve_one(world, claimer)


def fail(world: World, claimer: Claimer, claim: ClaimId, retry: Any = None) -> Any:
    return world.run_group(outcomes.fail_held, claimer.process_id, claim, "boom", retry)


def complete(world: World, claimer: Claimer, claim: ClaimId, result: str | None = "1") -> bool:
    return world.run_group(outcomes.complete_held, claimer.process_id, claim, result)


def report(world: World, claimer: Claimer, claim: ClaimId) -> bool:
    return world.run_group(outcomes.report_held, claimer.process_id, claim, 0.5, "half")


def test_progress_and_a_result_are_kept_with_the_job_and_its_reservation_ends(world: World, claimer: Claimer) -> None:
    job = put_and_reserve(world, claimer, ttr=LARGEST_CLIENT_SECONDS)
    assert job.ttr == LARGEST_CLIENT_SECONDS
    assert world.run_group(jobs.touch_reservations, claimer.process_id, [job.claim]) == {job.claim}
    assert report(world, claimer, job.claim)
    task = world.get(job.id)
    assert (task.status, task.progress, task.progress_note) == (Status.WORKING, 0.5, "half")
    assert task.deadline_at is not None
    assert task.deadline_at.year > 2035, "without a limit of time, as long as any database can say"
    assert complete(world, claimer, job.claim, '{"a":[1]}')
    task = world.get(job.id)
    assert (task.status, task.result, task.deadline_at) == (Status.DONE, '{"a":[1]}', None)


def test_a_failure_is_an_attempt_and_its_reservation_ends(world: World, claimer: Claimer) -> None:
    job = put_and_reserve(world, claimer)
    assert fail(world, claimer, job.claim, 0.0) == RecordedFailure(0.0)
    task = world.get(job.id)
    assert (task.status, task.error, task.attempts, task.deadline_at) == (Status.FAILURE, "boom", 1, None)
    assert [(attempt.outcome, attempt.error, attempt.number) for attempt in world.attempts(job.id)] == [
        ("failure", "boom", 1)
    ]
    world.stage_due()
    assert reserve_one(world, claimer).id == job.id


def test_without_a_maximum_no_failure_is_the_last_and_with_one_it_is(world: World, claimer: Claimer) -> None:
    endless = put_and_reserve(world, claimer)
    for _ in range(4):
        assert fail(world, claimer, endless.claim, 0) == RecordedFailure(0)
        world.stage_due()
        endless = reserve_one(world, claimer)
    last = put_and_reserve(world, claimer, max_attempts=1)
    assert fail(world, claimer, last.claim, 0) == RecordedFailure(None)
    for_good = put_and_reserve(world, claimer)
    assert fail(world, claimer, for_good.claim, retry=False) == RecordedFailure(None)
    assert [world.status(job.id) for job in (endless, last, for_good)] == [Status.WORKING, Status.DEAD, Status.DEAD]


def test_pauses_grow_with_the_failures(world: World, claimer: Claimer) -> None:
    job = put_and_reserve(world, claimer)
    pauses = []
    for number in (0, 1, 4):
        world.set(job.id, attempts=number)
        failed = fail(world, claimer, job.claim)
        assert isinstance(failed, RecordedFailure)
        pauses.append(failed.retry_in)
        world.set(job.id, status=Status.PENDING, start_at=None)
        job = reserve_one(world, claimer)
    assert [round(pause or 0) for pause in pauses[:2]] == [1, 2]
    assert 12 < (pauses[2] or 0) < 20


def test_one_that_holds_it_no_more_can_change_nothing(world: World, claimer: Claimer) -> None:
    stale = put_and_reserve(world, claimer)
    world.run_group(jobs.release, claimer.process_id, [jobs.Release(stale.claim)])
    current = reserve_one(world, claimer)
    assert not complete(world, claimer, stale.claim)
    assert fail(world, claimer, stale.claim) is False
    assert not report(world, claimer, stale.claim)
    task = world.get(current.id)
    assert (task.status, task.attempts, task.progress) == (Status.WORKING, 0, None)
    assert complete(world, claimer, current.claim)
