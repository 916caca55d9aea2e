"""The checker accepts what may happen; `test_rules_of_*` break each of its rules."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.faults.history_builder import Script, rescued_while_frozen

# -------------------------------------------------------------------- what may happen


def a_kill(script: Script) -> None:
    task = script.task("long")
    script.start(task)
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
    script.start(task)
    script.tell("fault", kind="outage", target="all", effect="cut", everyone=True)
    script.end(task)
    script.tell("unsure", key="lost and never written", error="gone")
    script.now += 30
    script.tell("healed", kind="outage", target="all")
    script.complete(task)


def hands(script: Script) -> None:
    for action, label in (("cancel", "withdrawn"), ("retry", "retried"), ("move", "moved")):
        task = script.task("long")
        lease = script.start(task, process=2)
        script.tell("hand", task=task, action=action)
        script.write(task, label, error="by hand")
        script.end(task, "cancelled", lease=lease)
        if label != "withdrawn":
            script.succeed(task, process=3)


def a_move_by_sql(script: Script) -> None:
    task = script.task("long")
    lease = script.start(task, process=2)
    script.tell("hand", task=task, action="move by SQL")
    script.change(task, status="pending", lease=lease + 1)
    script.end(task, "cancelled", lease=lease)
    script.succeed(task, process=2)


def a_failure(script: Script) -> None:
    task = script.task("failing")
    script.fail(task)
    script.arrive(task)
    script.succeed(task)


def a_timeout(script: Script) -> None:
    task = script.task("stubborn")
    script.start(task)
    script.now += 1
    script.end(task, "cancelled")
    script.write(task, "timeout", error="it ran longer")
    script.arrive(task)
    script.succeed(task)


def a_snooze_and_a_stop(script: Script) -> None:
    for name, outcome, label in (("snoozing", "snoozed", "snoozed"), ("long", "cancelled", "released")):
        task = script.task(name)
        script.start(task)
        script.end(task, outcome, saw_cancel=True)
        script.write(task, label)
        if label == "snoozed":
            script.arrive(task)
        script.succeed(task, process=2)


def ends_that_are_asked_for(script: Script) -> None:
    for name, label in (("gives_up", "dead"), ("withdraws", "canceled")):
        task = script.task(name)
        script.start(task)
        script.end(task, label)
        script.write(task, label)


def an_end_by_finish_at(script: Script) -> None:
    task = script.task(finish_at=script.now + 1)
    script.now += 2
    script.delete(task)
    task = script.task("long", finish_at=script.now + 1)
    script.start(task)
    script.now += 1
    script.end(task, "cancelled")
    script.write(task, "canceled", error="its finish_at came while it ran")


def a_purge(script: Script) -> None:
    task = script.task()
    script.succeed(task)
    script.now += 3_601
    script.delete(task)


def an_expiry_after_a_kill(script: Script) -> None:
    """The task is gone with its row; what it went through was written down."""
    task = script.task(finish_at=script.now + 2)
    script.start(task, process=3)
    script.kill(3)
    script.write(task, "crash", error="its process died: killed by SIGKILL")
    script.arrive(task)
    script.now += 3
    script.delete(task)


def children(script: Script) -> None:
    parent = script.task("parent", key="77")
    script.start(parent)
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
    an_expiry_after_a_kill,
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
        2,
        4,
        4,
    )
    assert (counts["deleted"], counts["unsure"], counts["timeout"], counts["failure"]) == (3, 1, 1, 1)
    assert (counts["fault: kill worker"], counts["fault: cut off"]) == (2, 1)


def test_poison_that_runs_alone_and_ends_dead_is_accepted(script: Script) -> None:
    neighbour, poison = script.task(), script.task("poison")
    script.start(neighbour)
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
