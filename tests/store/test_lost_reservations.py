"""Reservations of a process that is dead: the jobs are ready at once, and no attempt is counted."""

from __future__ import annotations

from peerd.domain.lifecycle import Status, TaskEvent
from peerd.runtime.observability.events import ReservationsReleased, TasksRescued
from peerd.store.maintenance import due, rescue
from peerd.store.maintenance.rescue import RESERVATION_LABEL, RescuedTask, events_of_rescue
from peerd.store.nodes import processes
from peerd.store.schema.sql_clock import seconds_from_now
from tests.store.job_steps import put, reserve_one
from tests.store.world import World

SILENCE = 30.0


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
    task = world.get(job.id)
    assert (task.status, task.attempts, task.start_at, task.deadline_at) == (Status.PENDING, 0, None, None)
    assert world.attempts(job.id) == []


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
