"""The rules of handlers catch what they are there for: an unnoticed kill, recycling that cuts off a handler."""

from __future__ import annotations

import pytest

from tests.faults.history_builder import HistoryBuilder, assert_violation

KILLED = "HandlerProcessDied: the handler's process was killed by SIGKILL before it answered"
RECYCLED = "recycled (exit status 75): it has run 5 tasks (recycle_after = 5)"


def die(history_builder: HistoryBuilder, task: int, *, silence: float) -> None:
    """A handler's process is killed, its attempt ends after so many seconds, and the next one succeeds."""
    lease = history_builder.start(task)
    history_builder.add_event("dying", task=task, lease=lease, process_id=1, pid=101, handler="forking", pids=(999,))
    history_builder.now += silence
    history_builder.write(task, "failure", error=KILLED)
    history_builder.stage_due(task)
    history_builder.succeed(task)


def test_a_killed_handler_whose_attempt_does_not_end_is_caught(history_builder: HistoryBuilder) -> None:
    die(history_builder, history_builder.task("forking"), silence=30.0)
    assert_violation(history_builder, "death", "30.0 s without trouble later")


def test_a_killed_handler_whose_attempt_ends_soon_is_accepted(history_builder: HistoryBuilder) -> None:
    die(history_builder, history_builder.task("forking"), silence=1.0)
    assert history_builder.judge().problems == []


@pytest.mark.parametrize("label", ["released", "crash"])
def test_an_attempt_that_recycling_has_ended_is_caught(history_builder: HistoryBuilder, label: str) -> None:
    task = history_builder.task("long")
    history_builder.start(task)
    history_builder.processes[0].cause = RECYCLED
    history_builder.processes[0].ended_at = history_builder.now + 0.01
    history_builder.write(task, label, error="its process was stopped")
    if label == "crash":
        history_builder.stage_due(task)
    history_builder.succeed(task, process=2)
    assert "recycle" in {problem.rule for problem in history_builder.judge().problems}


def test_what_was_released_before_it_began_is_accepted(history_builder: HistoryBuilder) -> None:
    task = history_builder.task("short")
    history_builder.claim(task)
    history_builder.processes[0].cause = RECYCLED
    history_builder.write(task, "released", error="its process was stopped")
    history_builder.succeed(task, process=2)
    assert history_builder.judge().problems == []
