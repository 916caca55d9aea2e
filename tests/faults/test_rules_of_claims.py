"""The rules of claims catch what they are there for: stale writes, overlaps, runs that nothing explains."""

from __future__ import annotations

from tests.faults.final_tables import FinalAttempt
from tests.faults.history_builder import HistoryBuilder, assert_violation, rescued_while_frozen

# -------------------------------------------------------------------- stale writes


def test_a_result_of_a_stale_holder_is_caught(history_builder: HistoryBuilder) -> None:
    task = rescued_while_frozen(history_builder)
    history_builder.end(task, lease=1, process_id=1, pid=101)
    history_builder.change(task, status="done", result='{"lease": 1, "pid": 101}')
    assert_violation(history_builder, "stale write", "with the result of claim 1")


def test_a_result_that_a_stale_holder_writes_over_the_right_one_is_caught(history_builder: HistoryBuilder) -> None:
    task = rescued_while_frozen(history_builder)
    history_builder.end(task)
    history_builder.complete(task)
    history_builder.end(task, lease=1, process_id=1, pid=101)
    history_builder.change(task, result='{"lease": 1, "pid": 101}')
    problems = history_builder.judge().problems
    assert {problem.rule for problem in problems} == {"stale write", "lease"}
    assert any("its lease is 2, and its result is of 1" in problem.text for problem in problems)
    assert any("were written although it stayed done" in problem.text for problem in problems)


def test_a_failure_of_a_stale_holder_is_caught(history_builder: HistoryBuilder) -> None:
    task = rescued_while_frozen(history_builder)
    history_builder.end(task, "failure", lease=1, process_id=1, pid=101)
    history_builder.end(task)
    history_builder.write(task, "failure", error="Planned: as ordered, at lease 1")
    history_builder.stage_due(task)
    history_builder.succeed(task, process=2)
    assert any(
        "by claim 1" in problem.text for problem in history_builder.judge().problems if problem.rule == "stale write"
    )


def test_a_task_that_is_done_although_its_handler_never_ended_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task()
    history_builder.start(task)
    history_builder.complete(task)
    assert_violation(history_builder, "stale write", "its handler never ended")


def test_a_task_that_is_done_although_its_handler_failed_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task()
    history_builder.start(task)
    history_builder.end(task, "snoozed")
    history_builder.complete(task)
    problems = history_builder.judge().problems
    assert any("its handler ended as snoozed" in problem.text for problem in problems)
    assert {problem.rule for problem in problems} == {"stale write", "not written"}


def test_an_outcome_that_is_written_before_the_handler_ended_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task()
    history_builder.start(task)
    history_builder.complete(task)
    history_builder.now += 1
    history_builder.end(task)
    problems = history_builder.judge().problems
    assert any("before its handler ended" in problem.text for problem in problems)
    assert {problem.rule for problem in problems} == {"stale write", "overlap"}


def test_an_attempt_of_another_process_than_the_claims_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task("failing")
    history_builder.start(task)
    history_builder.end(task, "failure")
    history_builder.write(task, "failure").process_id = 3
    history_builder.stage_due(task)
    history_builder.succeed(task)
    problems = history_builder.judge().problems
    assert any("by process 3, and process 1 had claimed it" in problem.text for problem in problems)
    assert {problem.rule for problem in problems} == {"stale write", "attempts"}


def test_a_timeout_before_its_time_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task("stubborn")
    history_builder.start(task)
    history_builder.end(task, "cancelled")
    history_builder.write(task, "timeout", error="it ran longer")
    history_builder.stage_due(task)
    history_builder.succeed(task)
    assert_violation(history_builder, "stale write", "before its timeout")


# -------------------------------------------------------------------- overlap


def test_a_handler_that_runs_without_a_claim_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task()
    history_builder.begin(task, lease=7, process_id=2)
    history_builder.succeed(task)
    assert_violation(history_builder, "overlap", "which was never claimed")


def test_a_handler_that_runs_twice_for_a_claim_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task()
    history_builder.claim(task)
    for _ in range(2):
        history_builder.begin(task)
        history_builder.end(task)
    history_builder.complete(task)
    assert_violation(history_builder, "overlap", "ran 2 times")


def test_a_handler_in_another_process_than_its_claims_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task()
    history_builder.claim(task)
    history_builder.begin(task, process_id=2)
    history_builder.end(task, process_id=2)
    history_builder.complete(task)
    assert_violation(history_builder, "overlap", "ran in process 2")


def test_a_handler_that_begins_before_its_claim_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task()
    began = history_builder.begin(task, lease=1, process_id=1, pid=101)
    history_builder.now += 1
    history_builder.claim(task)
    history_builder.end(task)
    history_builder.complete(task)
    assert began.time < history_builder.changes[1].at
    assert_violation(history_builder, "overlap", "before its claim")


def test_a_task_that_is_released_while_its_handler_runs_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task("deaf")
    history_builder.start(task)
    history_builder.write(task, "released", error="its process was stopped")
    history_builder.start(task, process=2)
    history_builder.now += 1
    history_builder.end(task, lease=1, process_id=1, pid=101)
    history_builder.end(task)
    history_builder.complete(task)
    assert_violation(history_builder, "overlap", "after its claim had ended as released")


# -------------------------------------------------------------------- attempts, outcomes


def test_an_extra_run_without_its_attempt_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task("failing")
    history_builder.fail(task)
    history_builder.stage_due(task)
    history_builder.succeed(task)
    history_builder.attempts.clear()
    assert_violation(history_builder, "attempts", "without a row in attempts")


def test_an_attempt_without_a_claim_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task()
    history_builder.succeed(task)
    history_builder.attempts.append(attempt_of(task))
    assert_violation(history_builder, "attempts", "belongs to no claim")


def attempt_of(task: int) -> FinalAttempt:
    return FinalAttempt(task_id=task, lease=9, outcome="failure", number=1, process_id=1)


def test_an_attempt_of_a_claim_that_succeeded_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task()
    history_builder.start(task)
    history_builder.end(task)
    history_builder.write(task, "failure")
    history_builder.rows[task].status = "done"
    history_builder.changes[-1].new_status, history_builder.changes[-1].details = "done", '{"lease": 1}'
    assert "not written" in {problem.rule for problem in history_builder.judge().problems}


def test_attempts_that_are_miscounted_are_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task("failing")
    history_builder.start(task)
    history_builder.end(task, "failure")
    history_builder.write(task, "failure").number = 2
    history_builder.stage_due(task)
    history_builder.succeed(task)
    assert_violation(history_builder, "attempts", "has the number 2")


def test_an_attempt_that_counts_although_it_should_not_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task("snoozing")
    history_builder.start(task)
    history_builder.end(task, "snoozed")
    history_builder.write(task, "snoozed")
    history_builder.rows[task].attempts = history_builder.changes[-1].new_attempts = 1
    history_builder.stage_due(task)
    history_builder.succeed(task)
    assert_violation(history_builder, "attempts", "went from 0 to 1")


def test_an_outcome_that_was_not_written_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task()
    history_builder.start(task)
    history_builder.end(task)
    history_builder.write(task, "released", error="its process was stopped")
    history_builder.succeed(task)
    assert_violation(history_builder, "not written", "ended as done, and its claim as released")


def test_an_outcome_that_a_living_process_kept_to_itself_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task()
    history_builder.start(task)
    history_builder.end(task)
    history_builder.now += 60
    history_builder.kill(1)
    history_builder.write(task, "crash", error="its process died")
    history_builder.stage_due(task)
    history_builder.succeed(task, process=2)
    assert_violation(history_builder, "not written", "60.0 s without trouble")
