"""The checker: it accepts what may happen, and each rule catches what it is there for."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.faults.checker import RULE_NAMES
from tests.faults.script import Script
from tests.faults.tables import AttemptRow


@pytest.fixture
def script() -> Script:
    return Script()


def caught(script: Script, rule: str, words: str) -> None:
    """The rule, and no other, is broken."""
    problems = script.judge().problems
    assert {problem.rule for problem in problems} == {rule}, "\n".join(str(problem) for problem in problems)
    assert any(words in problem.text for problem in problems), [problem.text for problem in problems]
    assert rule in RULE_NAMES


# -------------------------------------------------------------------- what may happen


def a_kill(script: Script) -> None:
    task = script.task("long")
    script.claim(task)
    script.begin(task)
    script.kill(1)
    script.write(task, "crash", error="its process died: killed by SIGKILL")
    script.arrive(task)
    script.succeed(task, process=2)


def a_freeze(script: Script) -> None:
    """The stale holder goes on when it thaws, and what it writes is refused."""
    task = rescued_while_frozen(script)
    script.end(task, lease=1, process_id=1, pid=101)
    script.end(task)
    script.complete(task)


def a_node_that_is_cut_off(script: Script) -> None:
    task = script.task("long")
    script.claim(task, process=4)
    touched = script.now
    script.begin(task)
    script.tell("fault", kind="cut off", target="one", effect="cut", nodes=("one",), lingers=3.0)
    script.end(task)
    script.now += 7
    script.write(task, "rescued", error="its process died", checked_at=touched)
    script.arrive(task)
    script.succeed(task, process=3)
    script.tell("healed", kind="cut off", target="one")


def an_outage(script: Script) -> None:
    """Whoever has ended meanwhile writes it when the database is back."""
    task = script.task("long")
    script.claim(task)
    script.begin(task)
    script.tell("fault", kind="outage", target="all", effect="cut", everyone=True)
    script.end(task)
    script.tell("unsure", key="lost and never written", error="gone")
    script.now += 30
    script.tell("healed", kind="outage", target="all")
    script.complete(task)


def hands(script: Script) -> None:
    for action, label in (("cancel", "withdrawn"), ("retry", "retried"), ("move", "moved")):
        task = script.task("long")
        lease = script.claim(task, process=2)
        script.begin(task)
        script.tell("hand", task=task, action=action)
        script.write(task, label, error="by hand")
        script.end(task, "cancelled", lease=lease)
        if label != "withdrawn":
            script.succeed(task, process=3)


def a_move_by_sql(script: Script) -> None:
    task = script.task("long")
    lease = script.claim(task, process=2)
    script.begin(task)
    script.tell("hand", task=task, action="move by SQL")
    script.change(task, status="pending", lease=lease + 1)
    script.end(task, "cancelled", lease=lease)
    script.succeed(task, process=2)


def a_failure(script: Script) -> None:
    task = script.task("failing")
    script.claim(task)
    script.begin(task)
    script.end(task, "failure")
    script.write(task, "failure")
    script.arrive(task)
    script.succeed(task)


def a_timeout(script: Script) -> None:
    task = script.task("stubborn")
    script.claim(task)
    script.begin(task)
    script.now += 1
    script.end(task, "cancelled")
    script.write(task, "timeout", error="it ran longer")
    script.arrive(task)
    script.succeed(task)


def a_snooze_and_a_stop(script: Script) -> None:
    for name, outcome, label in (("snoozing", "snoozed", "snoozed"), ("long", "cancelled", "released")):
        task = script.task(name)
        script.claim(task)
        script.begin(task)
        script.end(task, outcome, saw_cancel=True)
        script.write(task, label)
        if label == "snoozed":
            script.arrive(task)
        script.succeed(task, process=2)


def ends_that_are_asked_for(script: Script) -> None:
    for name, label in (("gives_up", "dead"), ("withdraws", "canceled")):
        task = script.task(name)
        script.claim(task)
        script.begin(task)
        script.end(task, label)
        script.write(task, label)


def an_end_by_finish_at(script: Script) -> None:
    task = script.task(finish_at=script.now + 1)
    script.now += 2
    script.delete(task)
    task = script.task("long", finish_at=script.now + 1)
    script.claim(task)
    script.begin(task)
    script.now += 1
    script.end(task, "cancelled")
    script.write(task, "canceled", error="its finish_at came while it ran")


def a_purge(script: Script) -> None:
    task = script.task()
    script.succeed(task)
    script.now += 3_601
    script.delete(task)


def children(script: Script) -> None:
    parent = script.task("parent", key="77")
    script.claim(parent)
    script.begin(parent)
    script.ledger.append((parent, "77/1/0"))
    child = script.task(key="77/1/0")
    script.end(parent)
    script.complete(parent)
    script.succeed(child)


STORIES = (
    a_freeze,
    a_node_that_is_cut_off,
    an_outage,
    hands,
    a_move_by_sql,
    a_failure,
    a_timeout,
    a_snooze_and_a_stop,
    ends_that_are_asked_for,
    an_end_by_finish_at,
    children,
    a_purge,
    a_kill,
)


@pytest.mark.parametrize("story", STORIES)
def test_what_may_happen_is_accepted(script: Script, story: Callable[[Script], None]) -> None:
    story(script)
    report = script.judge()
    assert report.problems == [], str(report)


def test_all_of_it_in_one_run_is_accepted_and_counted(script: Script) -> None:
    for story in STORIES[1:]:
        story(script)
    report = script.judge()
    assert report.problems == [], str(report)
    counts = report.counts
    assert (counts["rescued"], counts["crash"], counts["by hand"], counts["ended too late, and refused"]) == (
        1,
        1,
        4,
        4,
    )
    assert (counts["deleted"], counts["unsure"], counts["timeout"], counts["failure"]) == (2, 1, 1, 1)
    assert (counts["fault: kill worker"], counts["fault: cut off"]) == (1, 1)


def test_poison_that_runs_alone_and_ends_dead_is_accepted(script: Script) -> None:
    neighbour, poison = script.task(), script.task("poison")
    script.claim(neighbour)
    script.begin(neighbour)
    for process in (1, 2, 3):
        script.claim(poison, process)
        script.begin(poison)
        script.end(poison, "crashing")
        if process == 1:
            script.write(neighbour, "crash", error="its process died")
            script.arrive(neighbour)
        if process < 3:
            script.write(poison, "crash", error="its process died")
            script.arrive(poison)
    script.attempts.append(script.write(poison, "crash", error="its process died"))
    script.changes[-1].new_status = "dead"
    script.rows[poison].status = "dead"
    script.succeed(neighbour, process=4)
    assert script.judge().problems == []


# -------------------------------------------------------------------- lost


def test_an_acknowledged_task_that_was_never_in_the_table_is_lost(script: Script) -> None:
    script.succeed(script.task())
    script.tell("enqueued", task=99, queue="work", name="short", key="99")
    caught(script, "lost", "never in the table")


def test_a_task_that_has_not_ended_is_lost(script: Script) -> None:
    script.claim(script.task())
    caught(script, "lost", "it is working")


def test_a_task_that_ends_as_it_should_not_is_lost(script: Script) -> None:
    task = script.task()
    script.claim(task)
    script.begin(task)
    script.end(task, "failure")
    script.write(task, "dead")
    caught(script, "lost", "ends as done, and this one is dead")


def test_a_row_that_nobody_deleted_and_that_is_gone_is_lost(script: Script) -> None:
    task = script.task()
    script.succeed(task)
    del script.rows[task]
    caught(script, "lost", "its row is gone")


@pytest.mark.parametrize("status", ["pending", "done"])
def test_a_task_that_no_rule_deletes_is_lost(script: Script, status: str) -> None:
    task = script.task()
    if status == "done":
        script.succeed(task)
    script.delete(task)
    caught(script, "lost", f"deleted while it was {status}")


# -------------------------------------------------------------------- keys, transactions


def test_a_key_that_is_written_twice_is_caught(script: Script) -> None:
    for _ in range(2):
        script.succeed(script.task(key="same"))
    caught(script, "keys", "written 2 times")


def test_a_task_that_nobody_has_enqueued_is_caught(script: Script) -> None:
    script.succeed(script.task())
    script.events = [event for event in script.events if event.event != "enqueued"]
    caught(script, "keys", "nobody has enqueued")


def test_an_answer_that_names_another_task_is_caught(script: Script) -> None:
    one, two = script.task(), script.task()
    for task in (one, two):
        script.succeed(task)
    first = next(event for event in script.events if event.task == one)
    first.task = two
    caught(script, "keys", "was acknowledged for the key 1")


def test_business_data_without_their_task_are_caught(script: Script) -> None:
    task = script.task("parent")
    script.succeed(task)
    script.ledger.append((task, "1/1/0"))
    caught(script, "transaction", "no task has that key")


def test_a_child_without_its_business_data_is_caught(script: Script) -> None:
    script.succeed(script.task("parent"))
    script.succeed(script.task(key="1/1/0"))
    caught(script, "transaction", "the ledger does not know")


# -------------------------------------------------------------------- lifecycle, leases


def test_a_way_that_the_lifecycle_does_not_know_is_caught(script: Script) -> None:
    task = script.task()
    script.change(task, status="failure")
    script.arrive(task)
    script.succeed(task)
    caught(script, "lifecycle", "no way from pending to failure")


def test_a_write_that_nobody_wrote_down_is_caught(script: Script) -> None:
    task = script.task("failing")
    script.claim(task)
    script.begin(task)
    script.end(task, "failure")
    script.write(task, "failure")
    script.arrive(task)
    script.succeed(task, process=2)
    del script.changes[3]
    caught(script, "lifecycle", "does not lead on from")


def test_a_row_that_is_not_as_it_was_left_is_caught(script: Script) -> None:
    task = script.task()
    script.succeed(task)
    script.rows[task].attempts = 5
    caught(script, "lifecycle", "not as its last change left it")


def test_a_claim_that_does_not_raise_the_lease_by_one_is_caught(script: Script) -> None:
    task = script.task()
    script.change(task, status="working", lease=2, process_id=1)
    script.begin(task)
    script.end(task)
    script.complete(task)
    caught(script, "lease", "raised the lease by 2")


def test_a_claim_of_a_task_that_is_held_is_caught(script: Script) -> None:
    task = script.task()
    script.claim(task)
    script.change(task, status="working", process_id=2)
    script.begin(task)
    script.end(task)
    script.complete(task)
    assert "lease" in {problem.rule for problem in script.judge().problems}


def test_a_lease_that_nobody_may_raise_is_caught(script: Script) -> None:
    task = script.task("failing")
    script.claim(task)
    script.begin(task)
    script.end(task, "failure")
    script.write(task, "failure")
    script.change(task, status="pending", lease=2)
    script.succeed(task)
    caught(script, "lease", "nobody who may do so raised its lease")


def test_a_claim_by_another_node_than_the_tasks_is_caught(script: Script) -> None:
    task = script.task()
    script.claim(task, node_id=2, worker_node_id=1)
    script.begin(task)
    script.end(task)
    script.complete(task)
    caught(script, "lease", "may run on node 2 only")


def test_a_claim_before_its_time_is_caught(script: Script) -> None:
    task = script.task()
    script.claim(task, start_at=script.now + 5)
    script.begin(task)
    script.end(task)
    script.complete(task)
    caught(script, "lease", "before its start_at")


def test_a_claim_after_its_time_is_caught(script: Script) -> None:
    task = script.task(finish_at=script.now + 1)
    script.now += 20
    script.succeed(task)
    caught(script, "lease", "after its finish_at")


# -------------------------------------------------------------------- stale writes


def rescued_while_frozen(script: Script) -> int:
    """A task whose holder, process 1 at lease 1, was frozen; process 2 has it now at lease 2."""
    task = script.task("long")
    script.claim(task)
    script.begin(task)
    touched = script.now
    script.tell("fault", kind="freeze", target="w", effect="frozen", pids=(101,))
    script.now += 8
    script.write(task, "rescued", error="its process died", checked_at=touched)
    script.arrive(task)
    script.claim(task, process=2)
    script.begin(task)
    script.tell("healed", kind="freeze", target="w")
    return task


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
    script.claim(task)
    script.begin(task)
    script.complete(task)
    caught(script, "stale write", "its handler never ended")


def test_a_task_that_is_done_although_its_handler_failed_is_caught(script: Script) -> None:
    task = script.task()
    script.claim(task)
    script.begin(task)
    script.end(task, "snoozed")
    script.complete(task)
    problems = script.judge().problems
    assert any("its handler ended as snoozed" in problem.text for problem in problems)
    assert {problem.rule for problem in problems} == {"stale write", "not written"}


def test_an_outcome_that_is_written_before_the_handler_ended_is_caught(script: Script) -> None:
    task = script.task()
    script.claim(task)
    script.begin(task)
    script.complete(task)
    script.now += 1
    script.end(task)
    problems = script.judge().problems
    assert any("before its handler ended" in problem.text for problem in problems)
    assert {problem.rule for problem in problems} == {"stale write", "overlap"}


def test_an_attempt_of_another_process_than_the_claims_is_caught(script: Script) -> None:
    task = script.task("failing")
    script.claim(task)
    script.begin(task)
    script.end(task, "failure")
    script.write(task, "failure").process_id = 3
    script.arrive(task)
    script.succeed(task)
    problems = script.judge().problems
    assert any("by process 3, and process 1 had claimed it" in problem.text for problem in problems)
    assert {problem.rule for problem in problems} == {"stale write", "attempts"}


def test_a_timeout_before_its_time_is_caught(script: Script) -> None:
    task = script.task("stubborn")
    script.claim(task)
    script.begin(task)
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
    script.claim(task)
    script.begin(task)
    script.write(task, "released", error="its process was stopped")
    script.claim(task, process=2)
    script.begin(task)
    script.now += 1
    script.end(task, lease=1, process_id=1, pid=101)
    script.end(task)
    script.complete(task)
    caught(script, "overlap", "after its claim had ended as released")


# -------------------------------------------------------------------- attempts, outcomes


def test_an_extra_run_without_its_attempt_is_caught(script: Script) -> None:
    a_failure(script)
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
    script.claim(task)
    script.begin(task)
    script.end(task)
    script.write(task, "failure")
    script.rows[task].status = "done"
    script.changes[-1].new_status, script.changes[-1].details = "done", '{"lease": 1}'
    assert "not written" in {problem.rule for problem in script.judge().problems}


def test_attempts_that_are_miscounted_are_caught(script: Script) -> None:
    task = script.task("failing")
    script.claim(task)
    script.begin(task)
    script.end(task, "failure")
    script.write(task, "failure").number = 2
    script.arrive(task)
    script.succeed(task)
    caught(script, "attempts", "has the number 2")


def test_an_attempt_that_counts_although_it_should_not_is_caught(script: Script) -> None:
    task = script.task("snoozing")
    script.claim(task)
    script.begin(task)
    script.end(task, "snoozed")
    script.write(task, "snoozed")
    script.rows[task].attempts = script.changes[-1].new_attempts = 1
    script.arrive(task)
    script.succeed(task)
    caught(script, "attempts", "went from 0 to 1")


def test_an_outcome_that_was_not_written_is_caught(script: Script) -> None:
    task = script.task()
    script.claim(task)
    script.begin(task)
    script.end(task)
    script.write(task, "released", error="its process was stopped")
    script.succeed(task)
    caught(script, "not written", "ended as done, and its claim as released")


def test_an_outcome_that_a_living_process_kept_to_itself_is_caught(script: Script) -> None:
    task = script.task()
    script.claim(task)
    script.begin(task)
    script.end(task)
    script.now += 60
    script.kill(1)
    script.write(task, "crash", error="its process died")
    script.arrive(task)
    script.succeed(task, process=2)
    caught(script, "not written", "60.0 s without trouble")


# -------------------------------------------------------------------- processes


def test_a_rescue_from_a_living_process_is_caught(script: Script) -> None:
    task = script.task("long")
    script.claim(task)
    script.begin(task)
    touched = script.now
    script.now += 10
    script.write(task, "rescued", error="its process died", checked_at=touched)
    script.arrive(task)
    script.succeed(task, process=2)
    caught(script, "rescue", "6.0 s without trouble")


def test_a_rescue_long_after_an_outage_is_caught(script: Script) -> None:
    task = script.task("long")
    script.claim(task)
    script.begin(task)
    touched = script.now
    script.tell("fault", kind="kill server", target="server", effect="cut", everyone=True, lingers=1.0)
    script.now += 2
    script.tell("healed", kind="kill server", target="server")
    script.now += 6
    script.write(task, "rescued", error="its process died", checked_at=touched)
    script.arrive(task)
    script.succeed(task, process=2)
    caught(script, "rescue", "without trouble")


def test_a_rescue_too_early_is_caught(script: Script) -> None:
    task = script.task("long")
    script.claim(task)
    script.begin(task)
    script.kill(1)
    script.now += 8
    script.write(task, "rescued", error="its process died", checked_at=script.now - 3)
    script.arrive(task)
    script.succeed(task, process=2)
    caught(script, "rescue", "after its last touch")


def test_a_crash_of_a_process_that_nothing_has_hurt_is_caught(script: Script) -> None:
    task = script.task("long")
    script.claim(task)
    script.begin(task)
    script.write(task, "crash", error="its process died")
    script.arrive(task)
    script.succeed(task, process=2)
    caught(script, "crash", "nothing has hurt its process")


def test_a_process_that_goes_on_after_its_tasks_were_taken_back_is_caught(script: Script) -> None:
    task, other = script.task("long"), script.task("long")
    for one in (task, other):
        script.claim(one)
        script.begin(one)
    script.tell("fault", kind="kill master", target="two/master", effect="dead", pids=(9,))
    script.write(task, "crash", error="its process died")
    script.arrive(task)
    script.now += 1
    script.end(other)
    script.complete(other)
    script.succeed(task, process=2)
    caught(script, "crash", "its process 1 went on")


def test_a_task_that_crashed_a_process_and_runs_beside_others_is_caught(script: Script) -> None:
    task, other = script.task("long"), script.task("long")
    script.claim(task)
    script.begin(task)
    script.kill(1)
    script.write(task, "crash", error="its process died")
    script.arrive(task)
    script.claim(other, process=2)
    script.begin(other)
    script.succeed(task, process=2)
    script.end(other)
    script.complete(other)
    caught(script, "poison", f"in process 2 beside {other}")


# -------------------------------------------------------------------- the checker itself


def test_fifty_thousand_tasks_are_judged_in_seconds(script: Script) -> None:
    for _ in range(50_000):
        script.succeed(script.task())
    began = time.process_time()
    assert script.judge().problems == []
    assert time.process_time() - began < 20


def test_a_problem_shows_the_lines_that_prove_it(script: Script) -> None:
    script.claim(script.task())
    [problem] = script.judge().problems
    assert "pending → working, lease 0 → 1" in str(problem)
    assert "enqueued" in str(problem)
