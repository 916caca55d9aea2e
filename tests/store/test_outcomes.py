"""The holder's writes: outcomes, touches, progress; each is refused once the claim is lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from peerd.domain.lifecycle import Status
from peerd.domain.outcome import ERROR_LIMIT, Canceled, Deferred, Failed, Outcome, Released, Snoozed
from peerd.domain.task import Task
from peerd.store.maintenance import chore_batches, rescue
from peerd.store.outcomes import complete, touch
from peerd.store.outcomes.recording import ClaimId, WriteResult
from peerd.store.outcomes.touch import TaskProgress
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import tasks
from peerd.store.tasks import actions
from tests.store.world import World, held
from tests.support.outcomes import record_outcome

pytestmark = pytest.mark.every_database

OUTCOMES: list[Outcome] = [
    Failed(error="boom", retry_in=5.0),
    Failed(error="boom"),
    Failed(error="slow", retry_in=5.0, label="timeout"),
    Snoozed(60.0, "later"),
    Deferred(60.0, "no such handler"),
    Canceled("unwanted"),
    Released("the process ends"),
]


def lose_by_rescue(world: World, task: Task) -> None:
    world.silence(task.id, 60)
    assert len(world.run(rescue.rescue_untouched, 30.0)) == 1


def lose_by_death(world: World, task: Task) -> None:
    assert task.process_id is not None
    assert len(world.run(rescue.release_tasks_of_process, task.process_id, "SIGKILL", crashed=True)) == 1


def lose_by_hand(world: World, task: Task) -> None:
    """The UPDATE that docs/schema.md gives for moving a running task with SQL."""
    node_id = world.node("b")
    assert world.set(task.id, node_id=node_id, status="pending", lease=tasks.c.lease + 1)


LOSSES: dict[str, Callable[[World, Task], object]] = {
    "cancel": lambda world, task: world.run(actions.cancel, task.id),
    "retry": lambda world, task: world.run(actions.retry, task.id),
    "move": lambda world, task: world.run(actions.move, task.id, None),
    "delete": lambda world, task: world.run(actions.delete, task.id),
    "rescue": lose_by_rescue,
    "death": lose_by_death,
    "hand": lose_by_hand,
}


def test_a_holder_that_lost_its_claim_can_change_nothing_also_when_it_has_claimed_the_task_again(world: World) -> None:
    for name, lose in LOSSES.items():
        world.empty()
        world.add(max_attempts=9)
        claimer = world.claimer()
        first = world.take_one(claimer)
        lose(world, first)
        assert_refused(world, first, name)
        if name not in {"cancel", "delete"}:
            world.set(first.id, node_id=None, crashes=0, start_at=None, status="pending")
            again = world.take_one(claimer)
            assert (again.id, again.lease > first.lease) == (first.id, True), name
            assert_refused(world, first, name)
            assert world.complete(again), name


def assert_refused(world: World, task: Task, name: str) -> None:
    """Every write of the lost claim is refused and changes nothing."""
    assert task.process_id is not None
    row, attempts = world.find(task.id), world.attempt_rows()
    assert world.run(complete.complete, task.process_id, {held(task): "1"}) == {held(task)}, name
    for outcome in OUTCOMES:
        assert not world.run(record_outcome, task.process_id, held(task), outcome), (name, outcome)
    assert world.run(touch.touch, {held(task)}) == {held(task)}, name
    assert world.run(touch.report_progress, {held(task): TaskProgress(0.5)}).refused == {held(task)}, name
    assert world.run(rescue.release_unknown_claims, task.process_id, [held(task)], "lost") == [], name
    assert (world.find(task.id), world.attempt_rows()) == (row, attempts), name


def test_success_is_one_row_with_its_result_and_no_attempt(world: World) -> None:
    task_id = world.add()
    task = world.take_one()
    assert world.complete(task, '{"a":1}')
    done = world.get(task_id)
    assert (done.status, done.result, done.progress, done.attempts) == (Status.DONE, '{"a":1}', 1.0, 0)
    assert done.finished_at is not None
    assert world.attempt_rows() == 0


def test_many_are_completed_together_and_the_lost_ones_are_named(world: World) -> None:
    for _ in range(7):
        world.add()
    claimer = world.claimer()
    taken = world.take(claimer)
    world.run(rescue.release_unknown_claims, claimer.process_id, [held(taken[0])], "released")
    [again] = world.take(claimer)  # at a higher lease, in the same batch
    world.run(actions.cancel, taken[3].id)
    results = {held(task): f'"{task.id}"' for task in [*taken, again]} | {ClaimId(10**9, 1): None}
    assert world.run(complete.complete, claimer.process_id, results) == {
        held(taken[0]),
        held(taken[3]),
        ClaimId(10**9, 1),
    }
    assert world.get(again.id).result == f'"{again.id}"'
    assert [world.get(task.id).result for task in taken[4:]] == [f'"{task.id}"' for task in taken[4:]]


def test_completing_again_after_a_lost_reply_is_accepted_from_the_same_process_only(world: World) -> None:
    world.add()
    task = world.take_one()
    assert world.complete(task, "1")
    before = world.get(task.id)
    assert world.complete(task, "1")
    assert world.get(task.id) == before
    assert world.run(complete.complete, world.claimer().process_id, {held(task): "2"}) == {held(task)}


def record(world: World, task: Task, outcome: Outcome) -> bool:
    return world.run(record_outcome, task.process_id or 0, held(task), outcome)


def test_an_outcome_written_again_after_a_lost_reply_changes_nothing_and_another_one_is_refused(world: World) -> None:
    for outcome in OUTCOMES:
        task_id = world.add("again")
        task = world.take_one(world.claimer("again"))
        assert (task.id, task.process_id is None) == (task_id, False)
        write: Callable[[Outcome], bool] = partial(record, world, task)
        assert write(outcome), outcome
        row, attempts = world.get(task.id), world.attempts(task.id)
        assert len(attempts) == 1, outcome
        assert write(outcome), outcome
        other = next(other for other in OUTCOMES[::-1] if type(other) is not type(outcome))
        assert not write(other), (outcome, other)
        assert (world.get(task.id), world.attempts(task.id)) == (row, attempts), outcome
        assert not world.run(record_outcome, world.claimer().process_id, held(task), outcome), outcome
        world.run(actions.delete, task.id)


def test_a_failure_counts_and_is_due_after_its_delay_and_the_last_one_is_dead(world: World) -> None:
    task_id = world.add(max_attempts=2)
    task = world.take_one()
    assert world.fail(task, retry_in=60.0, traceback="Traceback …")
    failed = world.get(task_id)
    assert (failed.status, failed.attempts, failed.error) == (Status.FAILURE, 1, "boom")
    assert failed.start_at is not None
    assert timedelta(seconds=50) < failed.start_at - failed.updated_at <= timedelta(seconds=61)
    [attempt] = world.attempts(task_id)
    assert (attempt.number, attempt.outcome, attempt.error, attempt.traceback) == (1, "failure", "boom", "Traceback …")
    assert (attempt.node_id, attempt.process_id, attempt.lease) == (task.worker_node_id, task.process_id, task.lease)
    assert attempt.started_at == task.worker_started_at
    assert world.run(chore_batches.stage_due, Status.FAILURE) == 0
    world.set(task_id, start_at=None)
    world.stage_due()
    world.fail(world.take_one())
    dead = world.get(task_id)
    assert (dead.status, dead.attempts, dead.finished_at is None) == (Status.DEAD, 2, False)
    assert world.outcomes(task_id) == ["failure", "dead"]


def test_a_snooze_and_a_release_count_nothing_and_a_release_keeps_the_last_error(world: World) -> None:
    task_id = world.add()
    task = world.take_one()
    assert world.run(record_outcome, task.process_id or 0, held(task), Snoozed(3600.0, "not now"))
    snoozed = world.get(task_id)
    assert (snoozed.status, snoozed.attempts, snoozed.error) == (Status.SCHEDULED, 0, None)
    assert [(one.number, one.outcome, one.error) for one in world.attempts(task_id)] == [(0, "snoozed", "not now")]
    world.set(task_id, start_at=None)
    world.stage_due()
    world.fail(world.take_one())
    world.stage_due()
    task = world.take_one()
    assert world.run(record_outcome, task.process_id or 0, held(task), Released("the process ends"))
    released = world.get(task_id)
    assert (released.status, released.attempts, released.error) == (Status.PENDING, 1, "boom")
    assert world.take_one().lease == task.lease + 1


def test_texts_that_a_database_would_refuse_are_cut_and_repaired(world: World) -> None:
    task_id = world.add()
    task = world.take_one()
    assert task.process_id is not None
    dirty = "nul \x00 half \ud800 " + "x" * 10 * ERROR_LIMIT
    assert world.run(touch.report_progress, {held(task): TaskProgress(float("nan"), dirty)}) == WriteResult(
        set(), set()
    )
    assert len(world.get(task_id).progress_note or "") <= 255
    failed = Failed(error=dirty, traceback=dirty * 10, retry_in=0.0)
    assert world.run(record_outcome, task.process_id, held(task), failed)
    [attempt] = world.attempts(task_id)
    assert len(attempt.error or "") <= ERROR_LIMIT
    assert "\x00" not in (attempt.error or "\x00")
    world.run(actions.cancel, task_id, dirty)
    assert len(world.get(task_id).error or "") <= ERROR_LIMIT


def test_a_touch_renews_the_held_and_names_the_lost(world: World) -> None:
    for _ in range(5):
        world.add()
    claimer = world.claimer()
    taken = world.take(claimer)
    for task in taken:
        world.silence(task.id, 20)
    world.run(actions.cancel, taken[2].id)
    world.complete(taken[3])
    tokens = {held(taken[at]): world.column(taken[at].id, "claim_token") for at in (0, 1, 4)}
    assert world.read(touch.claims_of_process, claimer.process_id) == tokens
    lost = world.run(touch.touch, {held(task) for task in taken} | {ClaimId(10**9, 1)})
    assert lost == {held(taken[2]), held(taken[3]), ClaimId(10**9, 1)}
    assert world.run(rescue.rescue_untouched, 10.0) == []
    assert world.run(touch.touch, set()) == set()


def test_progress_is_written_for_many_at_once_and_touches_them(world: World) -> None:
    for _ in range(3):
        world.add()
    taken = world.take(world.claimer())
    for task in taken:
        world.silence(task.id, 60)
    reports = {
        held(taken[0]): TaskProgress(0.25, "a quarter"),
        held(taken[1]): TaskProgress(2.0),
        ClaimId(10**9, 1): TaskProgress(0.1),
    }
    assert world.run(touch.report_progress, reports) == WriteResult({ClaimId(10**9, 1)}, set())
    rows = [world.get(task.id) for task in taken]
    assert [(row.progress, row.progress_note) for row in rows] == [(0.25, "a quarter"), (1.0, None), (None, None)]
    assert [one.task_id for one in world.run(rescue.rescue_untouched, 30.0)] == [taken[2].id]


def test_a_task_that_could_only_be_retried_after_its_end_is_dead(world: World) -> None:
    task_id = world.insert(finish_at=seconds_from_now(30))
    world.fail(world.take_one(), retry_in=60.0)
    dead = world.get(task_id)
    assert dead.status is Status.DEAD
    assert "finish_at" in (dead.error or "")


RESULTS = (
    None,
    "1",
    '""',
    '"it\'s 100 % \\"so\\", \\\\, %s, :x, ?"',
    '"ünïcödé 漢字 🎬 \\u0000 \u2028"',
    '{"a": [1, 2.5, null]}',
    f'"{"é" * 1_000_000}"',
)


def test_each_of_many_results_is_written_into_its_own_task_however_large(world: World) -> None:
    """All together are larger than what a server takes in one statement."""
    claimer = world.claimer()
    for number in (1, 2, 3, 7, 64, 65):
        for _ in range(number):
            world.add()
        taken = world.take(claimer, number)
        given = {held(task): RESULTS[index % len(RESULTS)] for index, task in enumerate(reversed(taken))}
        assert world.run_autocommit(complete.complete, claimer.process_id, given) == set(), number
        found = [world.get(task.id) for task in taken]
        assert {ClaimId(task.id, task.lease): task.result for task in found} == given, number
        assert {task.status for task in found} == {Status.DONE}, number
