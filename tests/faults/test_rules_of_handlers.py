"""The rules of handlers catch what they are there for: a killed one that nobody hears of, recycling that cuts off."""

from __future__ import annotations

import pytest

from tests.faults.history_builder import Script, caught

KILLED = "ProcessDied: the handler's process was killed by SIGKILL before it answered"
RECYCLED = "recycled (exit status 75): it has run 5 tasks (recycle_after = 5)"


def die(script: Script, task: int, *, silence: float) -> None:
    """A handler's process is killed, its attempt ends after so many seconds, and the next one succeeds."""
    lease = script.start(task)
    script.tell("dying", task=task, lease=lease, process_id=1, pid=101, handler="forking", pids=(999,))
    script.now += silence
    script.write(task, "failure", error=KILLED)
    script.arrive(task)
    script.succeed(task)


def test_a_killed_handler_whose_attempt_does_not_end_is_caught(script: Script) -> None:
    die(script, script.task("forking"), silence=30.0)
    caught(script, "death", "30.0 s without trouble later")


def test_a_killed_handler_whose_attempt_ends_soon_is_accepted(script: Script) -> None:
    die(script, script.task("forking"), silence=1.0)
    assert script.judge().problems == []


@pytest.mark.parametrize("label", ["released", "crash"])
def test_an_attempt_that_recycling_has_ended_is_caught(script: Script, label: str) -> None:
    task = script.task("long")
    script.start(task)
    script.processes[0].cause = RECYCLED
    script.processes[0].ended_at = script.now + 0.01
    script.write(task, label, error="its process was stopped")
    if label == "crash":
        script.arrive(task)
    script.succeed(task, process=2)
    assert "recycle" in {problem.rule for problem in script.judge().problems}


def test_what_was_given_back_before_it_began_is_accepted(script: Script) -> None:
    task = script.task("short")
    script.claim(task)
    script.processes[0].cause = RECYCLED
    script.write(task, "released", error="its process was stopped")
    script.succeed(task, process=2)
    assert script.judge().problems == []
