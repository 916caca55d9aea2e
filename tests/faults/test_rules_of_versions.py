"""The rules of two versions of the code catch what they are there for: tasks run or ended by code that lacks them."""

from __future__ import annotations

import json

import pytest

from tests.faults import versions
from tests.faults.history_builder import HistoryBuilder, assert_violation

OF_OLD, OF_NEW = 1, 2
"""Processes of the script."""


def release_unknown_task(history_builder: HistoryBuilder, task: int, process: int) -> None:
    """A process claims a task, does not know it, and it waits for another one."""
    history_builder.claim(task, process)
    history_builder.write(task, "unknown", error="queue work has no handler of this name; other processes know it")
    history_builder.stage_due(task)


def run(history_builder: HistoryBuilder, task: int, process: int, code: str) -> None:
    history_builder.claim(task, process)
    history_builder.begin(task, code=code)
    history_builder.end(task)
    history_builder.complete(task)


def grows_by(history_builder: HistoryBuilder) -> int:
    """A task with the argument that the new code alone knows."""
    task = history_builder.task("grows")
    history_builder.changes[-1].details = json.dumps({"key": str(task), "by": 2})
    return task


def test_the_processes_of_the_script_have_the_code_that_is_reported_here(history_builder: HistoryBuilder) -> None:
    codes = {row.id: versions.code_of(history_builder.nodes[row.node_id]) for row in history_builder.processes}
    assert (codes[OF_OLD], codes[OF_NEW]) == (versions.OLD, versions.NEW)


def test_what_is_released_until_its_own_code_runs_it_is_accepted(history_builder: HistoryBuilder) -> None:
    coming, going, grown, plain = (
        history_builder.task("comes"),
        history_builder.task("goes"),
        grows_by(history_builder),
        history_builder.task("grows"),
    )
    for task in (coming, coming, grown):
        release_unknown_task(history_builder, task, OF_OLD)
    release_unknown_task(history_builder, going, OF_NEW)
    run(history_builder, coming, OF_NEW, versions.NEW)
    run(history_builder, grown, OF_NEW, versions.NEW)
    run(history_builder, going, OF_OLD, versions.OLD)
    run(history_builder, plain, OF_OLD, versions.OLD)
    report = history_builder.judge()
    assert report.problems == [], str(report)
    assert report.counts["unknown"] == 4


@pytest.mark.parametrize("label", ["released", "crash"])
def test_a_claim_whose_process_ended_before_it_was_released_is_accepted(
    history_builder: HistoryBuilder, label: str
) -> None:
    task = history_builder.task("comes")
    history_builder.claim(task, OF_OLD)
    history_builder.kill(OF_OLD)
    history_builder.write(task, label, error="its process died: killed by SIGKILL")
    if label == "crash":
        history_builder.stage_due(task)
    run(history_builder, task, OF_NEW, versions.NEW)
    assert history_builder.judge().problems == []


@pytest.mark.parametrize("name", ["comes", "grows"])
def test_a_task_that_is_run_by_code_that_does_not_know_it_is_caught(history_builder: HistoryBuilder, name: str) -> None:
    task = history_builder.task("comes") if name == "comes" else grows_by(history_builder)
    run(history_builder, task, OF_OLD, versions.OLD)
    assert_violation(history_builder, "versions", "was of the old code, which does not know the task")


def test_a_task_that_a_process_ends_although_its_code_does_not_know_it_is_caught(
    history_builder: HistoryBuilder,
) -> None:
    run(history_builder, history_builder.task("goes"), OF_NEW, versions.OLD)
    assert_violation(
        history_builder, "versions", "ended as done in a process with the new code, which does not know it"
    )


@pytest.mark.parametrize("label", ["dead", "failure"])
def test_a_task_that_is_dead_or_fails_because_a_process_does_not_know_it_is_caught(
    history_builder: HistoryBuilder, label: str
) -> None:
    task = history_builder.task("comes")
    history_builder.claim(task, OF_OLD)
    history_builder.write(task, label, error="queue work has no handler named 'comes'")
    if label == "failure":
        history_builder.stage_due(task)
        run(history_builder, task, OF_NEW, versions.NEW)
    problems = [problem.text for problem in history_builder.judge().problems if problem.rule == "versions"]
    assert problems == [f"its claim 1 ended as {label} in a process with the old code, which does not know it"]


def test_a_task_that_is_released_by_a_process_that_knows_it_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task("comes")
    release_unknown_task(history_builder, task, OF_NEW)
    run(history_builder, task, OF_NEW, versions.NEW)
    assert_violation(history_builder, "versions", "although the new code knows it")


def test_an_attempt_that_is_counted_for_being_released_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task("comes")
    history_builder.claim(task, OF_OLD)
    history_builder.write(task, "unknown").number = 1
    history_builder.rows[task].attempts = 1
    history_builder.changes[-1].new_attempts = 1
    history_builder.stage_due(task)
    run(history_builder, task, OF_NEW, versions.NEW)
    assert_violation(history_builder, "attempts", "its attempts went from 0 to 1")
