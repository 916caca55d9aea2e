"""Processes of a node that die, are recycled, tainted or replaced, and what becomes of their tasks. All on one node."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import psutil
import pytest

from peerd import Job
from peerd.domain.lifecycle import Status
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, WORKER, Cluster, ClusterNode
from tests.cluster.conftest import MakeCluster

MAX_UPDATE = 60.0
RECYCLED: dict[str, Any] = {"recycle_after": 1, "count": 3, "grace": "200ms"}


@pytest.fixture(scope="module")
def shared(module_cluster: MakeCluster) -> Cluster:
    cluster = module_cluster("mariadb")
    workers = {
        "jobs": {**WORKER, "processes": 2},
        "limited": cluster.worker("limited", timeout_grace="300ms", grace="30s"),
        "recycled": cluster.worker("recycled", **RECYCLED),
        "hurried": cluster.worker("hurried", **RECYCLED, drain_timeout="100ms", timeout_grace="300ms"),
        "talking": cluster.worker("talking", "talking"),
        "silent": cluster.worker("silent", "talking", log_lines=False),
    }
    sections = {"alerts.log": {"log": True}, "telemetry": {"metrics": False}}
    cluster.up("one", workers=workers, manager={"max_update": MAX_UPDATE}, sections=sections)
    return cluster


def start(cluster: Cluster, name: str, queue: str = "jobs", **options: Any) -> tuple[Job, dict[str, Any]]:
    """A task that has begun, and its event."""
    job = cluster.enqueue(name, queue, **options)
    return job, cluster.wait_for(job, "began")


def slot_of(node: ClusterNode, pid: int) -> str:
    return str(next(slot["name"] for slot in node.slots() if slot["pid"] == pid))


def renew(node: ClusterNode, slot: str) -> int:
    """Let a slot have a process that has done nothing yet; return its process id."""
    is_replaced = node.replaced(slot, node.kill(slot))
    eventually(lambda: is_replaced() and node.is_complete(), timeout=WITHIN, message=node.log_text)
    return node.pid(slot)


def test_a_child_that_a_handler_forks_gets_signals_of_its_own(cluster: Cluster, node: ClusterNode) -> None:
    pids = {slot["name"]: slot["pid"] for slot in node.slots("jobs")}
    for job in [cluster.enqueue("terminates_a_child") for _ in range(4)]:
        cluster.done(job)
        assert job.refresh().result() == -signal.SIGTERM
    assert {slot["name"]: slot["pid"] for slot in node.slots("jobs")} == pids


# ---------------------------------------------------------------- killed


def test_a_killed_workers_task_is_finished_by_another_process(cluster: Cluster, node: ClusterNode) -> None:
    job, began = start(cluster, "first_hangs")
    slot = slot_of(node, began["pid"])
    before = {process.slot: process.id for process in cluster.client.nodes.processes()}
    pid = node.kill(slot)
    task = cluster.done(job)
    assert (task.attempts, task.crashes, cluster.outcomes(job)) == (1, 1, [("crash", "killed by SIGKILL")])
    assert job.refresh().result()["pid"] != pid
    eventually(node.replaced(slot, pid), timeout=WITHIN, message=node.log_text)
    eventually(lambda: {p.slot: p.id for p in cluster.client.nodes.processes()}[slot] != before[slot])
    records = {process.id: process for process in cluster.client.nodes.processes(ended=True)}
    assert records[before[slot]].cause == "killed by SIGKILL"


def test_a_killed_agent_is_replaced_and_the_node_keeps_its_heartbeat_and_incarnation(
    cluster: Cluster, node: ClusterNode
) -> None:
    job, began = start(cluster, "gated")
    [before] = cluster.client.nodes.list()
    agent = node.kill("agent")
    eventually(node.replaced("agent", agent), timeout=WITHIN)
    seen = cluster.client.nodes.list()[0].checked_at
    after = eventually(lambda: [one for one in cluster.client.nodes.list() if one.checked_at != seen], timeout=WITHIN)
    assert after[0].incarnation == before.incarnation
    assert slot_of(node, began["pid"]), "it is still there"
    cluster.open(job)
    assert cluster.done(job).attempts == 0
    assert cluster.outcomes(job) == []


def test_what_a_canceled_or_killed_handlers_process_has_started_dies_with_it(cluster: Cluster) -> None:
    job, began = start(cluster, "program")
    assert psutil.pid_exists(began["pid"])
    assert psutil.pid_exists(began["child"])
    cluster.client.tasks.cancel(job.id, "not needed")
    eventually(lambda: not psutil.pid_exists(began["pid"]) and not psutil.pid_exists(began["child"]), timeout=WITHIN)
    assert cluster.client.tasks.get(job.id).status is Status.CANCELED

    job, began = start(cluster, "forks")
    os.kill(began["pid"], signal.SIGKILL)
    task = cluster.done(job)
    assert (task.attempts, task.lease) == (1, 2), "a failure at once"
    [attempt] = cluster.client.tasks.attempts(job.id)
    assert (attempt.outcome, attempt.error) == (
        "failure",
        "HandlerProcessDied: the handler's process was killed by SIGKILL before it answered",
    )
    assert not psutil.pid_exists(began["child"])


# ---------------------------------------------------------------- recycled and tainted


def test_recycled_processes_lose_no_task(cluster: Cluster, node: ClusterNode) -> None:
    first = renew(node, "recycled-1")
    jobs = [cluster.enqueue("quick", "recycled") for _ in range(8)]
    for job in jobs:
        assert cluster.done(job).attempts == 0
    eventually(node.replaced("recycled-1", first), timeout=WITHIN, message=node.log_text)
    assert sorted(event["task"] for event in cluster.notes(event="ran")) == [job.id for job in jobs]
    assert {outcome for job in jobs for outcome, _ in cluster.outcomes(job)} <= {"released"}, "before they began"
    ended = [process for process in cluster.client.nodes.processes(ended=True) if process.slot == "recycled-1"]
    assert len(ended) > 1


@pytest.mark.slow
def test_a_recycled_process_finishes_what_it_runs_however_long_that_takes(cluster: Cluster, node: ClusterNode) -> None:
    renew(node, "recycled-1")
    kept = [start(cluster, handler, "recycled", max_attempts=1) for handler in ("gated", "gated_thread")]
    first = kept[0][1]["pid"]
    cluster.done(cluster.enqueue("quick", "recycled"))
    eventually(node.replaced("recycled-1", first), timeout=WITHIN, message=node.log_text)
    [leaving] = node.slot("recycled-1")["leaving"]
    assert (leaving["pid"], leaving["reason"]) == (first, "it has run 1 tasks (recycle_after = 1)")
    later = cluster.enqueue("quick", "recycled")
    cluster.done(later)
    assert cluster.notes(later, "ran")[0]["pid"] != first, "it takes no new work"
    time.sleep(8.0)  # grace, time to release, and to be killed
    for job, _ in kept:
        cluster.open(job)
        task = cluster.done(job)
        assert (task.attempts, task.lease, cluster.outcomes(job)) == (0, 1, [])
    assert cluster.notes(event="cancelled") == []
    assert kept[1][0].refresh().result() is False, "it was not cancelled"
    eventually(lambda: not psutil.pid_exists(first), timeout=WITHIN, message=node.log_text)


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_is_recycled_has_crashed(cluster: Cluster, node: ClusterNode) -> None:
    renew(node, "recycled-1")
    job, began = start(cluster, "first_hangs", "recycled")
    cluster.done(cluster.enqueue("quick", "recycled"))
    eventually(node.replaced("recycled-1", began["pid"]), timeout=WITHIN, message=node.log_text)
    os.kill(began["pid"], signal.SIGKILL)
    assert cluster.done(job).crashes == 1
    [(outcome, cause)] = cluster.outcomes(job)
    assert outcome == "crash"
    assert str(cause).startswith("killed by SIGKILL while it was recycled")


@pytest.mark.slow
def test_what_outlives_the_drain_timeout_of_a_recycled_process_is_released_and_not_counted(
    cluster: Cluster, node: ClusterNode
) -> None:
    renew(node, "hurried-1")
    job, began = start(cluster, "deaf", "hurried", max_attempts=1)
    cluster.done(cluster.enqueue("quick", "hurried"))
    task = cluster.done(job)
    assert not psutil.pid_exists(began["pid"])
    assert (task.attempts, task.crashes, task.lease) == (0, 0, 2)
    assert [outcome for outcome, _ in cluster.outcomes(job)] == ["released"]


# ---------------------------------------------------------------- the hard limit of time


@pytest.mark.parametrize("handler", ["deaf", pytest.param("swallows", marks=pytest.mark.slow)])
def test_a_handler_that_does_not_return_after_its_timeout_ends_with_its_process(
    cluster: Cluster, node: ClusterNode, handler: str
) -> None:
    held, began = start(cluster, "gated", "limited")
    old = began["pid"]
    job, _ = start(cluster, handler, "limited", timeout=0.2)
    eventually(node.replaced("limited-1", old), timeout=WITHIN, message=node.log_text)
    reason = f"task {job.id} (limited/{handler}) did not return within 300ms after its timeout of 200ms"

    later = cluster.enqueue("quick", "limited")
    cluster.done(later)
    assert cluster.notes(later, "ran")[0]["pid"] != old, "it takes no new work"
    [leaving] = node.slot("limited-1")["leaving"]
    assert (leaving["pid"], leaving["reason"]) == (old, reason)
    eventually(lambda: f"is tainted: {reason}" in node.log_text().partition("alert: ")[2], timeout=WITHIN)
    task = cluster.client.tasks.get(job.id)
    assert (task.status, task.lease) == (Status.WORKING, 1), "no other process runs it while it runs here"

    cluster.open(held)
    assert cluster.done(held).attempts == 0, "its neighbours finish"
    task = cluster.done(job)
    assert not psutil.pid_exists(old)
    assert (task.attempts, task.crashes, task.lease) == (1, 0, 2)
    [attempt] = cluster.client.tasks.attempts(job.id)
    assert (attempt.outcome, attempt.number) == ("timeout", 1)
    assert attempt.error == "it did not return within 300ms after its timeout of 200ms; its process was ended"
    assert attempt.cause == f"tainted (exit status 70): {reason}"
    assert f"in {handler}" in str(attempt.traceback), "the traceback has the function"


@pytest.mark.slow
def test_a_thread_that_continues_after_its_finish_at_is_canceled_with_its_process(cluster: Cluster) -> None:
    job = cluster.enqueue("deaf", "limited", finish_in=1.0)
    task = cluster.wait_until(job, Status.CANCELED)
    assert task.crashes == 0
    [attempt] = cluster.client.tasks.attempts(job.id)
    assert attempt.outcome == "canceled"
    assert attempt.error == "it did not return within 300ms after its finish_at; its process was ended"


# ---------------------------------------------------------------- what they have logged and counted


def messages(cluster: Cluster, job: Job) -> list[str]:
    return [line.message for line in cluster.client.tasks.logs(job.id, limit=1000).items]


def test_lines_of_every_kind_of_handler_are_kept_and_still_in_the_log_of_the_node(
    cluster: Cluster, node: ClusterNode
) -> None:
    jobs = {name: cluster.enqueue(name, "talking") for name in ("coroutine", "thread", "process")}
    for name, job in jobs.items():
        cluster.done(job)
        eventually(lambda job=job: messages(cluster, job), timeout=WITHIN)  # type: ignore[misc]
        assert messages(cluster, job)[0] == f"printed by a {name} of task {job.id}"
    assert messages(cluster, jobs["coroutine"])[1:] == ["logged by a coroutine", "bound"]
    assert messages(cluster, jobs["process"])[1:] == ["bound"]
    log = node.log_text()
    for name, job in jobs.items():
        assert log.count(f"printed by a {name} of task {job.id}") == 1
    assert log.count("logged by a coroutine") == 1
    assert log.count("bound  ") == 2
    assert "attempt_log" not in log


@pytest.mark.slow
def test_the_last_lines_of_a_process_that_is_killed_are_written_by_its_successor(
    cluster: Cluster, node: ClusterNode
) -> None:
    job = cluster.enqueue("is_killed", "talking")
    eventually(lambda: messages(cluster, job) == ["long before"], timeout=WITHIN)
    (cluster.folder / "gate").touch()
    cluster.wait_until(job, Status.DEAD)
    eventually(lambda: messages(cluster, job) == ["long before", "the last words"], timeout=WITHIN)
    files = {path.name for path in node.run_directory.glob("lines-*")}
    assert files <= {f"lines-{pid}" for pid in node.all_pids()}, "the file of the killed one is removed"


@pytest.mark.slow
def test_a_worker_can_keep_no_lines_and_a_node_no_metrics(cluster: Cluster, node: ClusterNode) -> None:
    job = cluster.enqueue("coroutine", "silent")
    cluster.done(job)
    assert messages(cluster, job) == []
    run = node.peerd("metrics")
    assert (run.returncode, "set [telemetry] metrics = true" in run.stderr) == (1, True)
