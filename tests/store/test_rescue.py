"""Rescue of tasks from dead processes by many at once; the model holds what it writes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from peerd.domain.attempt_totals import AttemptTotals
from peerd.domain.bulk import BulkCancel, BulkRetry
from peerd.domain.lifecycle import Status, TaskEvent
from peerd.domain.task import Task
from peerd.runtime.observability.events import ReservationsReleased, TasksRescued
from peerd.store import due, processes, rescue
from peerd.store.attempt_series import sum_tiles
from peerd.store.rescue import RESERVATION_LABEL, RescuedTask, events_of_rescue
from peerd.store.schema.tables import tasks
from peerd.store.schema.types import seconds_from_now
from peerd.store.tasks.actions import act_on_task
from peerd.store.time_series import MINUTE, tiles
from tests.store.job_steps import put, reserve_one
from tests.store.world import World, at_once

pytestmark = pytest.mark.every_database


def test_rescuers_everywhere_at_once_rescue_each_task_once(world: World) -> None:
    for _ in range(40):
        world.add()
    for task in world.take(world.claimer(), 40):
        world.silence(task.id, 60)
    answers = at_once([lambda: world.run(rescue.rescue_untouched, 30.0, 15) for _ in range(4)])
    remaining = world.run(rescue.rescue_untouched, 30.0)
    ids = [one.task_id for answer in [*answers, remaining] for one in answer]
    assert len(ids) == len(set(ids)) == 40
    assert world.attempt_rows() == 40
    assert lost_attempts(world) == {"failed": 40}


def lost_attempts(world: World) -> dict[str, int]:
    """The failures in the time series, by their outcome."""
    rows = world.read(sum_tiles, tiles(datetime.now(UTC) - timedelta(minutes=5), datetime.now(UTC), MINUTE), ("queue",))
    return {name: count for name, count in rows.get(("q",), AttemptTotals()).outcomes.items() if count}


def test_a_crash_is_a_failure_in_the_time_series_and_a_stop_is_none(world: World) -> None:
    world.add(max_attempts=1)
    for crashed, expected in ((False, dict[str, int]()), (True, {"dead": 1})):
        task = world.take_one()
        assert task.process_id is not None
        world.run(rescue.release_tasks_of_process, task.process_id, "SIGABRT", crashed=crashed)
        assert lost_attempts(world) == expected


def test_a_row_that_was_set_to_working_by_hand_does_not_stop_the_rescue(world: World) -> None:
    """It may carry a lease at which an attempt is on record already."""
    task_id = world.task_in(Status.FAILURE)
    handmade = world.insert(status="working", updated_at=seconds_from_now(-60))
    assert world.set(task_id, status="working")
    world.silence(task_id, 60)
    assert {one.task_id for one in world.run(rescue.rescue_untouched, 30.0)} == {task_id, handmade}
    assert world.outcomes(task_id) == ["failure"]
    assert world.get(task_id).attempts == 2


def test_a_task_keeps_its_place_in_the_order_when_its_holder_died_and_loses_it_by_failures_of_its_own(
    world: World,
) -> None:
    def die(task: Task, *, crashed: bool) -> None:
        assert task.process_id is not None
        world.run(rescue.release_tasks_of_process, task.process_id, "SIGKILL", crashed=crashed)

    def silence(task: Task) -> None:
        world.silence(task.id, 60)
        world.run(rescue.rescue_untouched, 30.0)

    ends: dict[str, tuple[Callable[[Task], object], int]] = {
        "its process was asked to end": (lambda task: die(task, crashed=False), 0),
        "its node died": (silence, 0),
        "its process died": (lambda task: die(task, crashed=True), 0),
        "its process died again, which ran this task alone": (lambda task: die(task, crashed=True), 1),
        "it failed": (lambda task: world.fail(task, retry_in=-60.0), 2),
    }
    victim = world.add(max_attempts=9)
    world.set(victim, created_at=seconds_from_now(-1000))
    backlog = [world.insert(created_at=seconds_from_now(-900), max_attempts=9) for _ in range(2)]
    for end, (happens, failures) in ends.items():
        world.set(victim, priority=11)  # so that it is the next, also after a failure
        [task] = world.take(world.claimer(), 1, quarantined=world.get(victim).crashes > 0)
        assert task.id == victim
        happens(task)
        world.stage_due()
        world.set(victim, priority=10)
        assert (world.get(victim).status, world.get(victim).failures) == (Status.PENDING, failures), end
        world.execute(sa.update(tasks).where(tasks.c.id.in_(backlog)).values(crashes=world.get(victim).crashes))
        [first, *_] = world.take(world.claimer(), 1, quarantined=world.get(victim).crashes > 0)
        assert (first.id == victim) == (failures == 0), end
        die(first, crashed=False)
    world.run(act_on_task, victim, BulkCancel())
    world.run(act_on_task, victim, BulkRetry())
    assert world.get(victim).failures == 0


def test_a_release_is_repeated_until_the_last_write_of_the_dead_is_undone(world: World) -> None:
    """The server may not have undone the dead process's transaction yet."""
    for crashed in (True, False):
        world.empty()
        world.add()
        task = world.take_one()
        assert task.process_id is not None
        holds = partial(world.read, rescue.holds_tasks, task.process_id)
        release = partial(world.run, rescue.release_tasks_of_process, task.process_id, "SIGKILL", crashed=crashed)

        def release_all(holds: Callable[[], bool] = holds, release: Callable[[], list[Any]] = release) -> int:
            released = 0
            while holds():
                released += len(release())
            return released

        with world.store.engine.connect() as dying:
            transaction = dying.begin()
            if world.store.name != "sqlite":  # there every writer waits for every other
                dying.exec_driver_sql(f"UPDATE tasks SET progress = 0.5 WHERE id = {task.id}")

            def die(transaction: sa.RootTransaction = transaction) -> int:
                transaction.rollback()
                return 0

            both: list[Callable[[], int]] = [release_all, die]
            assert at_once(both) == [1, 0]


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
    assert untouched_for() < 60, "another life of its node ends the records of this one"
    assert world.run(rescue.rescue_untouched, SILENCE) == []
    world.silence(job.id, 60)
    assert untouched_for() > 59
    rescued = world.run(rescue.rescue_untouched, SILENCE)
    assert rescued == [RescuedTask(job.id, TaskEvent.RELEASE, RESERVATION_LABEL)]
    task = world.get(job.id)
    assert (task.status, task.attempts, task.start_at, task.deadline_at) == (Status.PENDING, 0, None, None)
    assert world.attempts(job.id) == []


def test_releases_are_reported_apart_from_rescues() -> None:
    rescued = [
        RescuedTask(1, TaskEvent.RELEASE, RESERVATION_LABEL),
        RescuedTask(2, TaskEvent.DIE, "crash", "images/resize"),
        RescuedTask(3, TaskEvent.RESCUE, "crash"),
    ]
    assert events_of_rescue(rescued, "g-1 SIGKILL") == [
        TasksRescued(cause="g-1 SIGKILL", task_ids=(2, 3), dead=1, dead_tasks=("2 (images/resize)",)),
        ReservationsReleased(cause="g-1 SIGKILL", task_ids=(1,)),
    ]
    assert events_of_rescue(rescued[:1], "")[0] == ReservationsReleased(cause="", task_ids=(1,))
    assert events_of_rescue([], "") == []
