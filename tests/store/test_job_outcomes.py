"""What queue clients report of jobs that they hold: a result, a failure, progress, on each database."""

from __future__ import annotations

from typing import Any

import pytest

from peerd.domain.lifecycle import Status
from peerd.domain.task import LARGEST_CLIENT_SECONDS
from peerd.store import jobs
from peerd.store.claim.claimer import Claimer
from peerd.store.jobs import outcomes
from peerd.store.jobs.outcomes import RecordedFailure
from peerd.store.jobs.types import ReservedJob
from peerd.store.outcomes.recording import ClaimId
from tests.store.job_steps import put, reserve_one
from tests.store.world import World

pytestmark = pytest.mark.every_database


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
    for attempts in (0, 1, 4):
        world.set(job.id, attempts=attempts)
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
