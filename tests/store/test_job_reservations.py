"""Reservations of queue clients: which jobs they get, what is kept with them, and how they end, on each database."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import msgspec
import pytest

import peerd
from peerd.domain.lifecycle import FINISHED, Status
from peerd.domain.task import LARGEST_CLIENT_SECONDS, NewTask
from peerd.store.jobs import free, holding, reserving, statistics
from peerd.store.jobs.holding import RecordedFailure, Release
from peerd.store.jobs.reserving import ReservedJob
from peerd.store.jobs.statistics import JobState
from peerd.store.outcomes import ClaimId
from peerd.store.schema.tables import tasks
from peerd.store.schema.types import seconds_from_now
from peerd.store.take.claimer import Claimer
from tests.store.job_steps import TTR, UINT32, delete, put, put_all, release, reserve, reserve_one, reserved_ids, state
from tests.store.world import World, at_once
from tests.support.server_kinds import ON_SERVERS

pytestmark = pytest.mark.every_database


BODIES = (b"", b"\x00", bytes(range(256)), "ünï\u2028code".encode(), b"\xff\xfe", b'"\\\r\n', b"x" * 65_535, b"NULL")


def test_bodies_come_back_byte_by_byte(world: World) -> None:
    claimer = world.claimer("q")
    for limit in (1, len(BODIES)):
        put_all(world, [body_task(body) for body in BODIES])
        found: list[ReservedJob] = []
        while len(found) < len(BODIES):
            found += reserve(world, claimer, limit)
        assert [job.body for job in found] == list(BODIES)
        assert [world.read(statistics.peek, job.id) for job in found] == [(job.id, job.body) for job in found]


def body_task(body: bytes) -> NewTask:
    """As the gateway stores it: text where it can be."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return NewTask(queue="q", body_bytes=body, ttr=1)
    return NewTask(queue="q", body_bytes=body, ttr=1) if "\x00" in text else NewTask(queue="q", body=text, ttr=1)


def test_three_hundred_tubes_can_be_watched_at_once(world: World) -> None:
    tubes = [f"tube-{number}" for number in range(300)]
    ids = put_all(world, [NewTask(queue=tube, ttr=1, priority=number % 7) for number, tube in enumerate(tubes)])
    unwatched = put(world, "unwatched")
    claimer = world.claimer(*tubes)
    best = sorted(ids, key=lambda job_id: (-(ids.index(job_id) % 7), job_id))
    assert reserved_ids(world, claimer, 1) == best[:1]
    assert reserved_ids(world, claimer, 150) == best[1:151]
    assert reserved_ids(world, claimer, 500) == best[151:]
    assert state(world, unwatched) is JobState.READY


def test_a_tube_that_is_paused_is_left_alone_and_others_are_not(world: World) -> None:
    paused, other = put(world, "paused"), put(world, "other", pri=9)
    world.run_group(free.pause_tube, "paused", 3600)
    claimer = world.claimer("paused", "other")
    assert reserved_ids(world, claimer, 5) == [other]
    pause = world.read(free.pause_state, "paused")
    assert pause.seconds == 3600
    assert 3590 < pause.left <= 3600
    world.run_group(free.pause_tube, "paused", 0)
    assert reserved_ids(world, claimer, 5) == [paused]
    for tube in ("paused", "never-paused"):
        assert world.read(free.pause_state, tube) == free.TubePause(0, 0)
    world.run_group(free.pause_tube, "paused", UINT32)
    assert world.read(free.pause_state, "paused").seconds == UINT32
    job_id = put(world, "paused")
    assert world.run_group(reserving.reserve_by_id, claimer, job_id, TTR) is not None, "by its id"


def test_a_job_that_is_too_late_hides_no_job_of_another_tube(world: World) -> None:
    world.insert(queue="q", priority=99, finish_at=seconds_from_now(-60))
    tubes = [f"tube-{number}" for number in range(20)]
    ids = [put(world, tube, pri=number) for number, tube in enumerate(tubes)]
    assert reserved_ids(world, world.claimer("q", *tubes[:2]), 1) == ids[:1]
    assert reserved_ids(world, world.claimer("q", *tubes), 1) == ids[1:2]
    assert reserved_ids(world, world.claimer("q", *tubes), 30) == ids[2:]


def test_a_job_that_is_too_late_brings_no_worse_job_of_its_tube_before_those_of_others(world: World) -> None:
    for number in range(2):
        world.insert(queue=f"late-{number}", priority=2**40, finish_at=seconds_from_now(-60))
    tubes = ("late-0", "late-1", "q")
    worst, better, best, beside = (put(world, tube, pri) for tube, pri in zip((*tubes, "q"), (9, 8, 0, 1), strict=True))
    assert reserved_ids(world, world.claimer(*tubes), 1) == [best]
    assert reserved_ids(world, world.claimer(tubes[0], tubes[2]), 1) == [beside]
    assert reserved_ids(world, world.claimer(*tubes), 1) == [better]
    assert reserved_ids(world, world.claimer(*tubes), 2) == [worst]
    least = world.insert(queue="q", priority=-(2**63) + 1)
    assert reserved_ids(world, world.claimer("q"), 1) == [least]


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_a_number_that_only_sqlite_can_hold_keeps_no_job_from_being_reserved(world: World) -> None:
    first, second = put(world), put(world)
    text = f"UPDATE tasks SET priority = 9e999 WHERE id = {second}"
    world.run(lambda connection: connection.exec_driver_sql(text).close())
    assert reserved_ids(world, world.claimer("q"), 5) == [second, first]


def test_a_row_without_a_ttr_gets_that_of_its_client_and_says_whether_it_has_attempts(world: World) -> None:
    claimer = world.claimer("q")
    for fields, has_attempts in (({}, False), ({"crashes": 1, "attempts": 1, "lease": 1}, True)):
        job_id = world.insert(**fields)
        job = reserve_one(world, claimer)
        assert (job.id, job.ttr, job.has_attempts) == (job_id, TTR, has_attempts)
        assert world.run_group(holding.touch_reservations, claimer.process_id, [job.claim]) == {job.claim}


def test_a_free_job_whose_queue_keeps_history_is_canceled_when_it_is_deleted(world: World) -> None:
    for status in Status:
        job_id = world.task_in(status, unique_key=str(status))
        deleted = world.run_group(partial(free.delete_free, keep={"q"}), [job_id, 2**64 - 1])
        is_free = status not in (*FINISHED, Status.WORKING)
        assert (set(deleted), world.status(job_id)) == (({job_id}, Status.CANCELED) if is_free else (set(), status)), (
            status
        )
    assert world.run_group(reserving.reserve_by_id, world.claimer("q"), 2**64 - 1, TTR) is None


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


def test_a_keyed_task_that_is_pinned_to_another_node_keeps_no_job_from_being_reserved(world: World) -> None:
    world.insert(queue="q", limit_key="k", node_id=world.node("b"))
    job_id = put(world)
    assert reserved_ids(world, world.claimer("q"), 1) == [job_id]


@pytest.mark.parametrize("store", ON_SERVERS, indirect=True)
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


def test_a_release_with_a_delay_makes_the_job_wait_and_one_without_keeps_the_delay_shown(world: World) -> None:
    job_id = put(world, pri=UINT32, ttr=UINT32)
    claimer = world.claimer("q")
    release(world, claimer, Release(reserve_one(world, claimer).claim, 65_536, UINT32, "releases"))
    found = world.read(statistics.job_statistics, job_id)
    assert found is not None
    assert (found.state, found.delay, found.priority) == (JobState.DELAYED, UINT32, 65_536)
    assert found.time_left > 10**8, "as long as any database can say"
    job = world.run_group(reserving.reserve_by_id, claimer, job_id, TTR)
    assert job is not None
    release(world, claimer, Release(job.claim, None, None, "timeouts"))
    found = world.read(statistics.job_statistics, job_id)
    assert found is not None
    assert (found.state, found.delay, found.time_left) == (JobState.READY, UINT32, 0)


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
    assert world.run(holding.release_all, gateway.node_id) == 2
    assert [state(world, job_id) for job_id in ids] == [JobState.READY, JobState.READY, JobState.RESERVED]
    assert kept.id == ids[2]
    assert world.status(claimed) is Status.WORKING
    assert reserved_ids(world, gateway, 5) == ids[:2]


class Held:
    """Jobs that one client reserves, and what it reports of them."""

    def __init__(self, world: World) -> None:
        self.world, self.claimer = world, world.claimer("q")

    def reserve(self, **fields: Any) -> ReservedJob:
        put(self.world, **fields)
        return reserve_one(self.world, self.claimer)

    def fail(self, claim: ClaimId, retry: Any = None) -> Any:
        return self.world.run_group(holding.fail_held, self.claimer.process_id, claim, "boom", retry)

    def complete(self, claim: ClaimId, result: str | None = "1") -> bool:
        return self.world.run_group(holding.complete_held, self.claimer.process_id, claim, result)

    def report(self, claim: ClaimId) -> bool:
        return self.world.run_group(holding.report_held, self.claimer.process_id, claim, 0.5, "half")


def test_progress_and_a_result_are_kept_with_the_job_and_its_reservation_ends(world: World) -> None:
    held = Held(world)
    job = held.reserve(ttr=LARGEST_CLIENT_SECONDS)
    touched = world.run_group(holding.touch_reservations, held.claimer.process_id, [job.claim])
    assert (job.ttr, touched, held.report(job.claim)) == (LARGEST_CLIENT_SECONDS, {job.claim}, True)
    task = world.get(job.id)
    assert (task.status, task.progress, task.progress_note) == (Status.WORKING, 0.5, "half")
    assert task.deadline_at is not None
    assert task.deadline_at.year > 2035, "without a limit of time, as long as any database can say"
    assert held.complete(job.claim, '{"a":[1]}')
    task = world.get(job.id)
    assert (task.status, task.result, task.deadline_at) == (Status.DONE, '{"a":[1]}', None)


def test_a_failure_is_an_attempt_and_the_last_one_where_there_is_a_maximum(world: World) -> None:
    held = Held(world)
    endless = held.reserve()
    for number in range(1, 4):
        assert held.fail(endless.claim, 0.0) == RecordedFailure(0.0)
        task = world.get(endless.id)
        assert (task.status, task.error, task.attempts, task.deadline_at) == (Status.FAILURE, "boom", number, None)
        assert world.outcomes(endless.id) == ["failure"] * number
        world.stage_due()
        endless = reserve_one(world, held.claimer)
    last, for_good = held.reserve(max_attempts=1), held.reserve()
    assert held.fail(last.claim, 0) == held.fail(for_good.claim, retry=False) == RecordedFailure(None)
    assert [world.status(job.id) for job in (endless, last, for_good)] == [Status.WORKING, Status.DEAD, Status.DEAD]


def test_pauses_grow_with_the_failures(world: World) -> None:
    held = Held(world)
    job = held.reserve()
    for number, least, most in ((0, 0.5, 1.5), (1, 1.5, 2.5), (4, 12, 20)):
        world.set(job.id, attempts=number)
        failed = held.fail(job.claim)
        assert isinstance(failed, RecordedFailure)
        assert failed.retry_in is not None
        assert least < failed.retry_in < most
        world.set(job.id, status=Status.PENDING, start_at=None)
        job = reserve_one(world, held.claimer)


def test_one_that_holds_it_no_more_can_change_nothing(world: World) -> None:
    held = Held(world)
    stale = held.reserve()
    world.run_group(holding.release, held.claimer.process_id, [holding.Release(stale.claim)])
    current = reserve_one(world, held.claimer)
    assert [held.complete(stale.claim), held.fail(stale.claim), held.report(stale.claim)] == [False] * 3
    task = world.get(current.id)
    assert (task.status, task.attempts, task.progress) == (Status.WORKING, 0, None)
    assert held.complete(current.claim)


def files_of(operation: Callable[[], object]) -> set[str]:
    """The files of peerd that have functions which an operation calls."""
    root, files = peerd.__path__[0], set[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(root) and "/testing/" not in file:
            files.add(file.removeprefix(root))

    sys.setprofile(note)
    try:
        assert operation()
    finally:
        sys.setprofile(None)
    return files


def test_a_claim_runs_through_seven_files_and_a_reservation_through_eight(world: World) -> None:
    """So that who follows one has few pages to turn."""
    claimer = world.claimer("q")
    takes: dict[int, Callable[[], object]] = {
        7: partial(world.take, claimer, 1),
        8: partial(reserve, world, claimer),
    }
    for most, take in takes.items():
        for _ in range(3):
            world.add()
        assert take(), "statements are compiled once"
        assert take()
        files = files_of(take)
        assert len(files) <= most, sorted(files)
