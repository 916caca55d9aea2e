"""Reservations of a process that is dead: the jobs are ready at once, and no attempt is counted."""

from __future__ import annotations

import msgspec

from peerd.domain.lifecycle import Status, TaskEvent
from peerd.runtime.observability.events import ReservationsReleased, TasksRescued
from peerd.store import jobs
from peerd.store.jobs import ReservedJob
from peerd.store.maintenance import due, rescue
from peerd.store.maintenance.rescue import RESERVATION_LABEL, RescuedTask, events_of_rescue
from peerd.store.nodes import processes
from peerd.store.outcomes import touch
from peerd.store.schema.sql_clock import seconds_from_now
from tests.store.job_steps import put, reserve, reserve_one
from tests.store.world import World

SILENCE = 30.0


def assert_is_ready_and_uncounted(world: World, job: ReservedJob) -> None:
    task = world.get(job.id)
    assert (task.status, task.attempts, task.crashes) == (Status.PENDING, 0, 0)
    assert (task.start_at, task.deadline_at) == (None, None)
    assert world.attempts(job.id) == []
    found = world.read(jobs.job_statistics, job.id)
    assert found is not None
    assert (found.timeouts, found.releases) == (0, 0)


def test_the_reservations_of_a_dead_process_are_released_and_its_claims_counted(world: World) -> None:
    for crashed in (True, False):
        world.empty()
        put(world)
        claimed = world.add("w")
        gateway = world.claimer("q", "w")
        job = reserve_one(world, msgspec.structs.replace(gateway, queues=("q",)))
        world.take_one(msgspec.structs.replace(gateway, queues=("w",)))
        released = world.run(rescue.release_tasks_of_process, gateway.process_id, "SIGKILL", crashed=crashed)
        assert RescuedTask(job.id, TaskEvent.RELEASE, RESERVATION_LABEL) in released
        assert_is_ready_and_uncounted(world, job)
        assert world.outcomes(claimed) == (["crash"] if crashed else ["released"])
        assert reserve_one(world, world.claimer("q")).id == job.id
        assert world.run_group(jobs.delete_held, gateway.process_id, [job.claim]) == set()


def test_a_reservation_lasts_as_long_as_its_process_lives_however_long_it_is_not_touched(world: World) -> None:
    put(world, ttr=3600)
    claimer = world.claimer("q")
    job = reserve_one(world, claimer)
    world.set(job.id, checked_at=seconds_from_now(-3000))

    def untouched_for() -> float:
        found = world.read(due.read_due_maintenance)
        assert found.oldest_touch is not None
        return (found.now - found.oldest_touch).total_seconds()

    assert untouched_for() < 60, "no rescue is due because of it"
    assert world.run(rescue.rescue_untouched, SILENCE) == []
    assert world.status(job.id) is Status.WORKING
    world.run(processes.end_process, claimer.process_id, "SIGKILL")
    assert untouched_for() > 2900
    world.silence(job.id, 60)
    rescued = world.run(rescue.rescue_untouched, SILENCE)
    assert rescued == [RescuedTask(job.id, TaskEvent.RELEASE, RESERVATION_LABEL)]
    assert_is_ready_and_uncounted(world, job)


def test_a_reservation_that_its_process_does_not_know_of_is_released(world: World) -> None:
    put(world)
    claimer = world.claimer("q")
    [job] = reserve(world, claimer)
    known = world.run(touch.claims_of_process, claimer.process_id)
    assert list(known) == [job.claim]
    released = world.run(rescue.release_unknown_claims, claimer.process_id, [job.claim], "its reply was lost")
    assert [one.was_reserved for one in released] == [True]
    assert_is_ready_and_uncounted(world, job)


def test_releases_are_reported_apart_from_rescues() -> None:
    rescued = [
        RescuedTask(1, TaskEvent.RELEASE, RESERVATION_LABEL),
        RescuedTask(2, TaskEvent.DIE, "crash"),
        RescuedTask(3, TaskEvent.RESCUE, "crash"),
    ]
    assert events_of_rescue(rescued, "g-1 SIGKILL") == [
        TasksRescued(cause="g-1 SIGKILL", task_ids=(2, 3), dead=1),
        ReservationsReleased(cause="g-1 SIGKILL", task_ids=(1,)),
    ]
    assert events_of_rescue(rescued[:1], "")[0] == ReservationsReleased(cause="", task_ids=(1,))
    assert events_of_rescue([], "") == []
