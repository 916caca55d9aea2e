"""The rules of two versions of the code catch what they are there for: tasks run or ended by code that lacks them."""

from __future__ import annotations

import json

import pytest

from tests.faults import versions
from tests.faults.history_builder import Script, caught

OF_OLD, OF_NEW = 1, 2
"""Processes of the script."""


def give_back(script: Script, task: int, process: int) -> None:
    """A process claims a task, does not know it, and it waits for another one."""
    script.claim(task, process)
    script.write(task, "unknown", error="queue work has no handler of this name; other processes know it")
    script.arrive(task)


def run(script: Script, task: int, process: int, code: str) -> None:
    script.claim(task, process)
    script.begin(task, code=code)
    script.end(task)
    script.complete(task)


def grows_by(script: Script) -> int:
    """A task with the argument that the new code alone knows."""
    task = script.task("grows")
    script.changes[-1].details = json.dumps({"key": str(task), "by": 2})
    return task


def test_the_processes_of_the_script_have_the_code_that_is_said_here(script: Script) -> None:
    codes = {row.id: versions.code_of(script.nodes[row.node_id]) for row in script.processes}
    assert (codes[OF_OLD], codes[OF_NEW]) == (versions.OLD, versions.NEW)


def test_what_is_given_back_until_its_own_code_runs_it_is_accepted(script: Script) -> None:
    coming, going, grown, plain = script.task("comes"), script.task("goes"), grows_by(script), script.task("grows")
    for task in (coming, coming, grown):
        give_back(script, task, OF_OLD)
    give_back(script, going, OF_NEW)
    run(script, coming, OF_NEW, versions.NEW)
    run(script, grown, OF_NEW, versions.NEW)
    run(script, going, OF_OLD, versions.OLD)
    run(script, plain, OF_OLD, versions.OLD)
    report = script.judge()
    assert report.problems == [], str(report)
    assert report.counts["unknown"] == 4


@pytest.mark.parametrize("label", ["released", "crash"])
def test_a_claim_whose_process_ended_before_it_was_given_back_is_accepted(script: Script, label: str) -> None:
    task = script.task("comes")
    script.claim(task, OF_OLD)
    script.kill(OF_OLD)
    script.write(task, label, error="its process died: killed by SIGKILL")
    if label == "crash":
        script.arrive(task)
    run(script, task, OF_NEW, versions.NEW)
    assert script.judge().problems == []


@pytest.mark.parametrize("name", ["comes", "grows"])
def test_a_task_that_is_run_by_code_that_does_not_know_it_is_caught(script: Script, name: str) -> None:
    task = script.task("comes") if name == "comes" else grows_by(script)
    run(script, task, OF_OLD, versions.OLD)
    caught(script, "versions", "was of the old code, which does not know the task")


def test_a_task_that_a_process_ends_although_its_code_does_not_know_it_is_caught(script: Script) -> None:
    run(script, script.task("goes"), OF_NEW, versions.OLD)
    caught(script, "versions", "ended as done in a process with the new code, which does not know it")


@pytest.mark.parametrize("label", ["dead", "failure"])
def test_a_task_that_is_dead_or_fails_because_a_process_does_not_know_it_is_caught(script: Script, label: str) -> None:
    task = script.task("comes")
    script.claim(task, OF_OLD)
    script.write(task, label, error="queue work has no handler named 'comes'")
    if label == "failure":
        script.arrive(task)
        run(script, task, OF_NEW, versions.NEW)
    problems = [problem.text for problem in script.judge().problems if problem.rule == "versions"]
    assert problems == [f"its claim 1 ended as {label} in a process with the old code, which does not know it"]


def test_a_task_that_is_given_back_by_a_process_that_knows_it_is_caught(script: Script) -> None:
    task = script.task("comes")
    give_back(script, task, OF_NEW)
    run(script, task, OF_NEW, versions.NEW)
    caught(script, "versions", "although the new code knows it")


def test_an_attempt_that_is_counted_for_being_given_back_is_caught(script: Script) -> None:
    task = script.task("comes")
    script.claim(task, OF_OLD)
    script.write(task, "unknown").number = 1
    script.rows[task].attempts = 1
    script.changes[-1].new_attempts = 1
    script.arrive(task)
    run(script, task, OF_NEW, versions.NEW)
    caught(script, "attempts", "its attempts went from 0 to 1")
