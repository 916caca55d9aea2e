"""The holder's writes: outcomes, touches, progress; each is refused once the claim is lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

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

OUTCOMES: list[Outcome] = [
    Failed(error="boom", retry_in=5.0),
    Failed(error="boom"),
    Failed(error="slow", retry_in=5.0, label="timeout"),
    Snoozed(60.0, "later"),
    Deferred(60.0, "no such handler"),
    Canceled("unwanted"),
    Released("the process ends"),
]


def lose_by_cancel(world: World, task: Task) -> None:
    world.run(actions.cancel, task.id)


def lose_by_retry(world: World, task: Task) -> None:
    world.run(actions.retry, task.id)


def lose_by_move(world: World, task: Task) -> None:
    world.run(actions.move, task.id, None)


def lose_by_delete(world: World, task: Task) -> None:
    world.run(actions.delete, task.id)


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


LOSSES = [lose_by_cancel, lose_by_retry, lose_by_move, lose_by_delete, lose_by_rescue, lose_by_death, lose_by_hand]


@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__)
def test_a_holder_that_lost_its_claim_can_change_nothing(world: World, lose: Callable[[World, Task], None]) -> None:
    world.add(max_attempts=9)
    task = world.take_one()
    lose(world, task)
    assert_refused(world, task)


@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__)
def test_an_old_claim_can_change_nothing_when_the_same_process_has_claimed_the_task_again(
    world: World, lose: Callable[[World, Task], None]
) -> None:
    world.add(max_attempts=9)
    claimer = world.claimer()
    first = world.take_one(claimer)
    lose(world, first)
    if world.find(first.id) is None or world.status(first.id) is Status.CANCELED:
        return
    world.set(first.id, node_id=None, crashes=0, start_at=None, status="pending")
    again = world.take_one(claimer)
    assert again.id == first.id
    assert again.lease > first.lease
    assert_refused(world, first)
    assert world.complete(again)


def assert_refused(world: World, task: Task) -> None:
    """Every write of the lost claim is refused and changes nothing."""
    assert task.process_id is not None
    row, attempts = world.find(task.id), world.attempt_rows()
    assert world.run(complete.complete, task.process_id, {held(task): "1"}) == {held(task)}
    for outcome in OUTCOMES[:-1]:
        assert not world.run(record_outcome, task.process_id, held(task), outcome)
    assert not world.run(record_outcome, task.process_id, held(task), OUTCOMES[-1])
    assert world.run(touch.touch, {held(task)}) == {held(task)}
    assert world.run(touch.report_progress, {held(task): TaskProgress(0.5)}).refused == {held(task)}
    assert world.run(rescue.release_unknown_claims, task.process_id, [held(task)], "lost") == []
    assert (world.find(task.id), world.attempt_rows()) == (row, attempts)


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


def test_large_results_are_written_in_statements_that_a_server_takes(world: World) -> None:
    result = '"' + "x" * 1_000_000 + '"'
    for _ in range(20):
        world.add()
    claimer = world.claimer()
    taken = world.take(claimer, 20)
    assert world.run(complete.complete, claimer.process_id, {held(task): result for task in taken}) == set()
    assert all(len(world.get(task.id).result or "") == len(result) for task in taken)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
def test_an_outcome_written_again_after_a_lost_reply_changes_nothing(world: World, outcome: Outcome) -> None:
    world.add()
    task = world.take_one()
    assert task.process_id is not None
    assert world.run(record_outcome, task.process_id, held(task), outcome)
    row, attempts = world.get(task.id), world.attempts(task.id)
    assert len(attempts) == 1
    assert world.run(record_outcome, task.process_id, held(task), outcome)
    assert (world.get(task.id), world.attempts(task.id)) == (row, attempts)
    assert not world.run(record_outcome, world.claimer().process_id, held(task), outcome)


def test_an_outcome_is_refused_when_another_one_was_written_about_the_claim(world: World) -> None:
    world.add()
    task = world.take_one()
    assert task.process_id is not None
    world.run(rescue.release_tasks_of_process, task.process_id, "canceled by its user", crashed=False)
    assert world.outcomes(task.id) == ["released"]
    assert not world.fail(task)
    assert not world.run(record_outcome, task.process_id, held(task), Snoozed(1.0, "x"))


def test_a_failure_counts_and_is_due_after_its_delay(world: World) -> None:
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


def test_the_last_attempts_failure_is_dead(world: World) -> None:
    task_id = world.add(max_attempts=2)
    world.fail(world.take_one())
    world.stage_due()
    world.fail(world.take_one())
    dead = world.get(task_id)
    assert (dead.status, dead.attempts) == (Status.DEAD, 2)
    assert dead.finished_at is not None
    assert world.outcomes(task_id) == ["failure", "dead"]


def test_a_snooze_counts_nothing_and_is_scheduled(world: World) -> None:
    task_id = world.add()
    task = world.take_one()
    assert task.process_id is not None
    world.run(record_outcome, task.process_id, held(task), Snoozed(3600.0, "not now"))
    snoozed = world.get(task_id)
    assert (snoozed.status, snoozed.attempts, snoozed.error) == (Status.SCHEDULED, 0, None)
    assert [(one.number, one.outcome, one.error) for one in world.attempts(task_id)] == [(0, "snoozed", "not now")]


def test_a_release_counts_nothing_and_keeps_the_last_error(world: World) -> None:
    task_id = world.add()
    world.fail(world.take_one())
    world.stage_due()
    task = world.take_one()
    assert task.process_id is not None
    world.run(record_outcome, task.process_id, held(task), Released("the process ends"))
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
    lost = world.run(touch.touch, {held(task) for task in taken} | {ClaimId(10**9, 1)})
    assert lost == {held(taken[2]), ClaimId(10**9, 1)}
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


def test_the_table_shows_the_claims_of_a_process(world: World) -> None:
    for _ in range(3):
        world.add()
    claimer = world.claimer()
    first, second = world.take(claimer, 2)
    world.take(world.claimer(), 1)
    world.complete(first)
    assert world.read(touch.claims_of_process, claimer.process_id) == {
        held(second): world.column(second.id, "claim_token")
    }


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
    f'"{"é" * 300_000}"',
)


@pytest.mark.parametrize("number", [1, 2, 3, 7, 64, 65])
def test_each_of_many_results_is_written_into_its_own_task(world: World, number: int) -> None:
    for _ in range(number):
        world.add()
    taken = world.take(world.claimer(), number)
    given = {held(task): RESULTS[index % len(RESULTS)] for index, task in enumerate(reversed(taken))}
    refused = world.store.run_autocommit(complete.complete, taken[0].process_id or 0, given)
    assert refused == set()
    assert {
        ClaimId(found.id, found.lease): found.result for found in map(world.get, [one.id for one in taken])
    } == given
    assert {world.status(task.id) for task in taken} == {Status.DONE}
