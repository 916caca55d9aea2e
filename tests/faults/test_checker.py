"""The checker accepts what may happen; `test_rules_of_*` break each of its rules."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.faults.history_builder import HistoryBuilder, rescued_while_frozen

# -------------------------------------------------------------------- what may happen


def a_kill(history_builder: HistoryBuilder) -> None:
    task = history_builder.task("long")
    history_builder.start(task)
    history_builder.kill(1)
    history_builder.write(task, "crash", error="its process died: killed by SIGKILL")
    history_builder.stage_due(task)
    history_builder.succeed(task, process=2)


def a_freeze(history_builder: HistoryBuilder) -> None:
    """The stale holder continues when it thaws, and what it writes is refused."""
    task = rescued_while_frozen(history_builder)
    history_builder.end(task, lease=1, process_id=1, pid=101)
    history_builder.end(task)
    history_builder.complete(task)


def a_node_that_is_cut_off(history_builder: HistoryBuilder) -> None:
    task = history_builder.task("long")
    history_builder.claim(task, process=4)
    touched = history_builder.now
    history_builder.begin(task)
    history_builder.add_event("fault", kind="cut off", target="one", effect="cut", nodes=("one",), lingers=3.0)
    history_builder.end(task)
    history_builder.now += 7
    history_builder.write(task, "rescued", error="its process died", checked_at=touched)
    history_builder.stage_due(task)
    history_builder.succeed(task, process=3)
    history_builder.add_event("healed", kind="cut off", target="one")


def an_outage(history_builder: HistoryBuilder) -> None:
    """Whoever has ended meanwhile writes it when the database is back."""
    task = history_builder.task("long")
    history_builder.start(task)
    history_builder.add_event("fault", kind="outage", target="all", effect="cut", everyone=True)
    history_builder.end(task)
    history_builder.add_event("unsure", key="lost and never written", error="gone")
    history_builder.now += 30
    history_builder.add_event("healed", kind="outage", target="all")
    history_builder.complete(task)


def hands(history_builder: HistoryBuilder) -> None:
    for action, label in (("cancel", "withdrawn"), ("retry", "retried"), ("move", "moved")):
        task = history_builder.task("long")
        lease = history_builder.start(task, process=2)
        history_builder.add_event("hand", task=task, action=action)
        history_builder.write(task, label, error="by hand")
        history_builder.end(task, "cancelled", lease=lease)
        if label != "withdrawn":
            history_builder.succeed(task, process=3)


def a_move_by_sql(history_builder: HistoryBuilder) -> None:
    task = history_builder.task("long")
    lease = history_builder.start(task, process=2)
    history_builder.add_event("hand", task=task, action="move by SQL")
    history_builder.change(task, status="pending", lease=lease + 1)
    history_builder.end(task, "cancelled", lease=lease)
    history_builder.succeed(task, process=2)


def a_failure(history_builder: HistoryBuilder) -> None:
    task = history_builder.task("failing")
    history_builder.fail(task)
    history_builder.stage_due(task)
    history_builder.succeed(task)


def a_timeout(history_builder: HistoryBuilder) -> None:
    task = history_builder.task("stubborn")
    history_builder.start(task)
    history_builder.now += 1
    history_builder.end(task, "cancelled")
    history_builder.write(task, "timeout", error="it ran longer")
    history_builder.stage_due(task)
    history_builder.succeed(task)


def a_snooze_and_a_stop(history_builder: HistoryBuilder) -> None:
    for name, outcome, label in (("snoozing", "snoozed", "snoozed"), ("long", "cancelled", "released")):
        task = history_builder.task(name)
        history_builder.start(task)
        history_builder.end(task, outcome, saw_cancel=True)
        history_builder.write(task, label)
        if label == "snoozed":
            history_builder.stage_due(task)
        history_builder.succeed(task, process=2)


def ends_on_request(history_builder: HistoryBuilder) -> None:
    for name, label in (("gives_up", "dead"), ("withdraws", "canceled")):
        task = history_builder.task(name)
        history_builder.start(task)
        history_builder.end(task, label)
        history_builder.write(task, label)


def an_end_by_finish_at(history_builder: HistoryBuilder) -> None:
    task = history_builder.task(finish_at=history_builder.now + 1)
    history_builder.now += 2
    history_builder.delete(task)
    task = history_builder.task("long", finish_at=history_builder.now + 1)
    history_builder.start(task)
    history_builder.now += 1
    history_builder.end(task, "cancelled")
    history_builder.write(task, "canceled", error="its finish_at came while it ran")


def a_purge(history_builder: HistoryBuilder) -> None:
    task = history_builder.task()
    history_builder.succeed(task)
    history_builder.now += 3_601
    history_builder.delete(task)


def an_expiry_after_a_kill(history_builder: HistoryBuilder) -> None:
    """The task is gone with its row; what it went through was written down."""
    task = history_builder.task(finish_at=history_builder.now + 2)
    history_builder.start(task, process=3)
    history_builder.kill(3)
    history_builder.write(task, "crash", error="its process died: killed by SIGKILL")
    history_builder.stage_due(task)
    history_builder.now += 3
    history_builder.delete(task)


def children(history_builder: HistoryBuilder) -> None:
    parent = history_builder.task("parent", key="77")
    history_builder.start(parent)
    history_builder.ledger.append((parent, "77/1/0"))
    child = history_builder.task(key="77/1/0")
    history_builder.end(parent)
    history_builder.complete(parent)
    history_builder.succeed(child)


ACCEPTED_HISTORIES = (
    a_freeze,
    a_node_that_is_cut_off,
    an_outage,
    hands,
    a_move_by_sql,
    a_failure,
    a_timeout,
    a_snooze_and_a_stop,
    ends_on_request,
    an_end_by_finish_at,
    children,
    a_purge,
    an_expiry_after_a_kill,
    a_kill,
)


@pytest.mark.parametrize("build_history", ACCEPTED_HISTORIES)
def test_what_may_happen_is_accepted(
    history_builder: HistoryBuilder, build_history: Callable[[HistoryBuilder], None]
) -> None:
    build_history(history_builder)
    report = history_builder.judge()
    assert report.problems == [], str(report)


def test_all_of_it_in_one_run_is_accepted_and_counted(history_builder: HistoryBuilder) -> None:
    for build_history in ACCEPTED_HISTORIES[1:]:
        build_history(history_builder)
    report = history_builder.judge()
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


def test_poison_that_runs_alone_and_ends_dead_is_accepted(history_builder: HistoryBuilder) -> None:
    neighbour, poison = history_builder.task(), history_builder.task("poison")
    history_builder.start(neighbour)
    for process in (1, 2, 3):
        history_builder.claim(poison, process)
        history_builder.begin(poison)
        history_builder.end(poison, "crashing")
        if process == 1:
            history_builder.write(neighbour, "crash", error="its process died")
            history_builder.stage_due(neighbour)
        if process < 3:
            history_builder.write(poison, "crash", error="its process died")
            history_builder.stage_due(poison)
    history_builder.attempts.append(history_builder.write(poison, "crash", error="its process died"))
    history_builder.changes[-1].new_status = "dead"
    history_builder.rows[poison].status = "dead"
    history_builder.succeed(neighbour, process=4)
    assert history_builder.judge().problems == []


# -------------------------------------------------------------------- the checker itself


def test_fifty_thousand_tasks_are_judged_in_seconds(history_builder: HistoryBuilder) -> None:
    for _ in range(50_000):
        history_builder.succeed(history_builder.task())
    began = time.process_time()
    assert history_builder.judge().problems == []
    assert time.process_time() - began < 20


def test_a_problem_shows_the_lines_that_prove_it(history_builder: HistoryBuilder) -> None:
    history_builder.claim(history_builder.task())
    [problem] = history_builder.judge().problems
    assert "pending → working, lease 0 → 1" in str(problem)
    assert "enqueued" in str(problem)
