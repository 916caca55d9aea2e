"""The rules of claims catch what they are there for: stale writes, overlaps, runs that nothing explains."""

from __future__ import annotations

from tests.faults.final_tables import AttemptRow
from tests.faults.history_builder import Script, caught, rescued_while_frozen

# -------------------------------------------------------------------- stale writes


def test_a_result_of_a_stale_holder_is_caught(script: Script) -> None:
    task = rescued_while_frozen(script)
    script.end(task, lease=1, process_id=1, pid=101)
    script.change(task, status="done", result='{"lease": 1, "pid": 101}')
    caught(script, "stale write", "with the result of claim 1")


def test_a_result_that_a_stale_holder_writes_over_the_right_one_is_caught(script: Script) -> None:
    task = rescued_while_frozen(script)
    script.end(task)
    script.complete(task)
    script.end(task, lease=1, process_id=1, pid=101)
    script.change(task, result='{"lease": 1, "pid": 101}')
    problems = script.judge().problems
    assert {problem.rule for problem in problems} == {"stale write", "lease"}
    assert any("its lease is 2, and its result is of 1" in problem.text for problem in problems)
    assert any("were written although it stayed done" in problem.text for problem in problems)


def test_a_failure_of_a_stale_holder_is_caught(script: Script) -> None:
    task = rescued_while_frozen(script)
    script.end(task, "failure", lease=1, process_id=1, pid=101)
    script.end(task)
    script.write(task, "failure", error="Planned: as ordered, at lease 1")
    script.arrive(task)
    script.succeed(task, process=2)
    assert any("by claim 1" in problem.text for problem in script.judge().problems if problem.rule == "stale write")


def test_a_task_that_is_done_although_its_handler_never_ended_is_caught(script: Script) -> None:
    task = script.task()
    script.start(task)
    script.complete(task)
    caught(script, "stale write", "its handler never ended")


def test_a_task_that_is_done_although_its_handler_failed_is_caught(script: Script) -> None:
    task = script.task()
    script.start(task)
    script.end(task, "snoozed")
    script.complete(task)
    problems = script.judge().problems
    assert any("its handler ended as snoozed" in problem.text for problem in problems)
    assert {problem.rule for problem in problems} == {"stale write", "not written"}


def test_an_outcome_that_is_written_before_the_handler_ended_is_caught(script: Script) -> None:
    task = script.task()
    script.start(task)
    script.complete(task)
    script.now += 1
    script.end(task)
    problems = script.judge().problems
    assert any("before its handler ended" in problem.text for problem in problems)
    assert {problem.rule for problem in problems} == {"stale write", "overlap"}


def test_an_attempt_of_another_process_than_the_claims_is_caught(script: Script) -> None:
    task = script.task("failing")
    script.start(task)
    script.end(task, "failure")
    script.write(task, "failure").process_id = 3
    script.arrive(task)
    script.succeed(task)
    problems = script.judge().problems
    assert any("by process 3, and process 1 had claimed it" in problem.text for problem in problems)
    assert {problem.rule for problem in problems} == {"stale write", "attempts"}


def test_a_timeout_before_its_time_is_caught(script: Script) -> None:
    task = script.task("stubborn")
    script.start(task)
    script.end(task, "cancelled")
    script.write(task, "timeout", error="it ran longer")
    script.arrive(task)
    script.succeed(task)
    caught(script, "stale write", "before its timeout")


# -------------------------------------------------------------------- overlap


def test_a_handler_that_runs_without_a_claim_is_caught(script: Script) -> None:
    task = script.task()
    script.begin(task, lease=7, process_id=2)
    script.succeed(task)
    caught(script, "overlap", "which nobody has claimed")


def test_a_handler_that_runs_twice_for_a_claim_is_caught(script: Script) -> None:
    task = script.task()
    script.claim(task)
    for _ in range(2):
        script.begin(task)
        script.end(task)
    script.complete(task)
    caught(script, "overlap", "ran 2 times")


def test_a_handler_in_another_process_than_its_claims_is_caught(script: Script) -> None:
    task = script.task()
    script.claim(task)
    script.begin(task, process_id=2)
    script.end(task, process_id=2)
    script.complete(task)
    caught(script, "overlap", "ran in process 2")


def test_a_handler_that_begins_before_its_claim_is_caught(script: Script) -> None:
    task = script.task()
    began = script.begin(task, lease=1, process_id=1, pid=101)
    script.now += 1
    script.claim(task)
    script.end(task)
    script.complete(task)
    assert began.time < script.changes[1].at
    caught(script, "overlap", "before its claim")


def test_a_task_that_is_released_while_its_handler_runs_is_caught(script: Script) -> None:
    task = script.task("deaf")
    script.start(task)
    script.write(task, "released", error="its process was stopped")
    script.start(task, process=2)
    script.now += 1
    script.end(task, lease=1, process_id=1, pid=101)
    script.end(task)
    script.complete(task)
    caught(script, "overlap", "after its claim had ended as released")


# -------------------------------------------------------------------- attempts, outcomes


def test_an_extra_run_without_its_attempt_is_caught(script: Script) -> None:
    task = script.task("failing")
    script.fail(task)
    script.arrive(task)
    script.succeed(task)
    script.attempts.clear()
    caught(script, "attempts", "without a row in attempts")


def test_an_attempt_without_a_claim_is_caught(script: Script) -> None:
    task = script.task()
    script.succeed(task)
    script.attempts.append(attempt_of(task))
    caught(script, "attempts", "belongs to no claim")


def attempt_of(task: int) -> AttemptRow:
    return AttemptRow(task_id=task, lease=9, outcome="failure", number=1, process_id=1)


def test_an_attempt_of_a_claim_that_succeeded_is_caught(script: Script) -> None:
    task = script.task()
    script.start(task)
    script.end(task)
    script.write(task, "failure")
    script.rows[task].status = "done"
    script.changes[-1].new_status, script.changes[-1].details = "done", '{"lease": 1}'
    assert "not written" in {problem.rule for problem in script.judge().problems}


def test_attempts_that_are_miscounted_are_caught(script: Script) -> None:
    task = script.task("failing")
    script.start(task)
    script.end(task, "failure")
    script.write(task, "failure").number = 2
    script.arrive(task)
    script.succeed(task)
    caught(script, "attempts", "has the number 2")


def test_an_attempt_that_counts_although_it_should_not_is_caught(script: Script) -> None:
    task = script.task("snoozing")
    script.start(task)
    script.end(task, "snoozed")
    script.write(task, "snoozed")
    script.rows[task].attempts = script.changes[-1].new_attempts = 1
    script.arrive(task)
    script.succeed(task)
    caught(script, "attempts", "went from 0 to 1")


def test_an_outcome_that_was_not_written_is_caught(script: Script) -> None:
    task = script.task()
    script.start(task)
    script.end(task)
    script.write(task, "released", error="its process was stopped")
    script.succeed(task)
    caught(script, "not written", "ended as done, and its claim as released")


def test_an_outcome_that_a_living_process_kept_to_itself_is_caught(script: Script) -> None:
    task = script.task()
    script.start(task)
    script.end(task)
    script.now += 60
    script.kill(1)
    script.write(task, "crash", error="its process died")
    script.arrive(task)
    script.succeed(task, process=2)
    caught(script, "not written", "60.0 s without trouble")
