"""Which jobs a queue client gets, in which order, and what a reservation writes, on each database."""

from __future__ import annotations

from functools import partial

import pytest

from peerd.domain.lifecycle import FINISHED, Status
from peerd.domain.task import NewTask
from peerd.store import jobs
from peerd.store.jobs import JobState, ReservedJob
from peerd.store.schema.sql_clock import seconds_from_now
from tests.store.job_steps import TTR, UINT32, put, put_all, reserve, reserve_one, reserved_ids, state
from tests.store.world import World

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
        assert [world.read(jobs.peek, job.id) for job in found] == [(job.id, job.body) for job in found]


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
    world.run_group(jobs.pause_tube, "paused", 3600)
    claimer = world.claimer("paused", "other")
    assert reserved_ids(world, claimer, 5) == [other]
    pause = world.read(jobs.pause_state, "paused")
    assert pause.seconds == 3600
    assert 3590 < pause.left <= 3600
    world.run_group(jobs.pause_tube, "paused", 0)
    assert reserved_ids(world, claimer, 5) == [paused]
    for tube in ("paused", "never-paused"):
        assert world.read(jobs.pause_state, tube) == jobs.TubePause(0, 0.0)
    world.run_group(jobs.pause_tube, "paused", UINT32)
    assert world.read(jobs.pause_state, "paused").seconds == UINT32
    job_id = put(world, "paused")
    assert world.run_group(jobs.take, claimer, job_id, TTR) is not None, "by its id"


def test_a_job_that_is_too_late_hides_no_job_of_another_tube(world: World) -> None:
    world.insert(queue="q", priority=99, finish_at=seconds_from_now(-60))
    tubes = [f"tube-{number}" for number in range(20)]
    ids = [put(world, tube, pri=number) for number, tube in enumerate(tubes)]
    assert reserved_ids(world, world.claimer("q", *tubes[:2]), 1) == ids[:1]
    assert reserved_ids(world, world.claimer("q", *tubes), 1) == ids[1:2]
    assert reserved_ids(world, world.claimer("q", *tubes), 30) == ids[2:]


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
        assert world.run_group(jobs.touch_reservations, claimer.process_id, [job.claim]) == {job.claim}


def test_a_free_job_whose_queue_keeps_history_is_canceled_when_it_is_deleted(world: World) -> None:
    for status in Status:
        job_id = world.task_in(status, unique_key=str(status))
        deleted = world.run_group(partial(jobs.delete_free, keep={"q"}), [job_id, 2**64 - 1])
        is_free = status not in (*FINISHED, Status.WORKING)
        assert (set(deleted), world.status(job_id)) == (({job_id}, Status.CANCELED) if is_free else (set(), status)), (
            status
        )
    assert world.run_group(jobs.take, world.claimer("q"), 2**64 - 1, TTR) is None
