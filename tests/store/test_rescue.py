"""Rescue of tasks from dead processes, and the attempts that it records."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from peerd.domain.lifecycle import Status
from peerd.store.maintenance import chore_batches, rescue
from peerd.store.nodes import processes
from peerd.store.schema.sql_clock import seconds_from_now
from tests.store.world import World, at_once

pytestmark = pytest.mark.every_database


def test_a_frozen_task_is_rescued_and_due_at_once(world: World) -> None:
    task_id = world.add()
    task = world.take_one()
    assert world.run(rescue.rescue_untouched, 30.0) == []
    world.silence(task_id, 31)
    [rescued] = world.run(rescue.rescue_untouched, 30.0)
    assert (rescued.task_id, rescued.label) == (task_id, "rescued")
    row = world.get(task_id)
    assert (row.status, row.attempts, row.crashes) == (Status.FAILURE, 1, 0)
    assert "the task was not touched for 30 s" in (row.error or "")
    [attempt] = world.attempts(task_id)
    assert (attempt.outcome, attempt.number, attempt.process_id) == ("rescued", 1, task.process_id)
    assert world.run(chore_batches.stage_due, Status.FAILURE) == 1
    assert world.take_one().lease == task.lease + 1


def test_a_task_is_rescued_only_when_its_process_is_silent_too_or_has_ended_or_is_unknown(world: World) -> None:
    claimers = [world.claimer() for _ in range(3)]
    living, ended, unknown = (world.add() for _ in claimers)
    for claimer, task_id in zip(claimers, (living, ended, unknown), strict=True):
        assert world.take_one(claimer).id == task_id
        world.silence(task_id, 60)
    for claimer in claimers:
        assert world.run(processes.heartbeat_process, claimer.process_id)
    world.run(processes.end_process, claimers[1].process_id, "killed by signal 9")
    world.set(unknown, process_id=10**9)
    assert {one.task_id for one in world.run(rescue.rescue_untouched, 30.0)} == {ended, unknown}
    world.silence(living, 60)
    assert [one.task_id for one in world.run(rescue.rescue_untouched, 30.0)] == [living]


def test_a_dead_processs_tasks_are_released_at_once_and_count_a_crash(world: World) -> None:
    for _ in range(3):
        world.add()
    claimer, other = world.claimer(), world.claimer()
    mine = world.take(claimer, 2)
    theirs = world.take(other, 1)
    rescued = world.run(rescue.release_tasks_of_process, claimer.process_id, "killed by signal 9", crashed=True)
    assert {one.task_id for one in rescued} == {task.id for task in mine}
    for task in mine:
        row = world.get(task.id)
        assert (row.status, row.attempts, row.crashes) == (Status.FAILURE, 1, 1)
        [attempt] = world.attempts(task.id)
        assert (attempt.outcome, attempt.cause) == ("crash", "killed by signal 9")
    assert world.status(theirs[0].id) is Status.WORKING
    assert world.run(rescue.release_tasks_of_process, claimer.process_id, "again", crashed=True) == []
    world.run(rescue.release_tasks_of_process, other.process_id, "stopped", crashed=False)
    row = world.get(theirs[0].id)
    assert (row.status, row.attempts, row.crashes) == (Status.PENDING, 0, 0), "it was stopped: that costs them nothing"


def test_the_last_attempt_dies_with_its_cause(world: World) -> None:
    task_id = world.add(max_attempts=3)
    for number in range(1, 4):
        claimer = world.claimer()
        [task] = world.take(claimer, 1, quarantined=number > 1)
        assert task.crashes == number - 1
        world.run(rescue.release_tasks_of_process, claimer.process_id, f"out of memory {number}", crashed=True)
        world.stage_due()
    row = world.get(task_id)
    assert (row.status, row.attempts, row.crashes) == (Status.DEAD, 3, 3)
    assert "out of memory 3; that was the last attempt" in (row.error or "")
    attempts = world.attempts(task_id)
    assert [(one.number, one.cause) for one in attempts] == [(n, f"out of memory {n}") for n in (1, 2, 3)]
    assert [one.lease for one in attempts] == [1, 2, 3]


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


def test_a_row_that_was_set_to_working_by_hand_does_not_stop_the_rescue(world: World) -> None:
    """It may carry a lease at which an attempt is on record already."""
    task_id = world.task_in(Status.FAILURE)
    handmade = world.insert(status="working", updated_at=seconds_from_now(-60))
    assert world.set(task_id, status="working")
    world.silence(task_id, 60)
    assert {one.task_id for one in world.run(rescue.rescue_untouched, 30.0)} == {task_id, handmade}
    assert world.outcomes(task_id) == ["failure"]
    assert world.get(task_id).attempts == 2


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
