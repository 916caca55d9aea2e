"""Nodes at work: sharing, pinning, draining, what is enabled, cancelling."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest

from peerd.domain.lifecycle import Status
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, WORKER, Cluster


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


@pytest.mark.one_database
def test_two_nodes_with_several_processes_share_the_tasks_and_run_each_once(each_cluster: Cluster) -> None:
    cluster = each_cluster
    cluster.up("one", "two", processes=2, count=2)
    gated = [cluster.enqueue("gated") for _ in range(8)]
    for job in gated:
        cluster.wait_for(job, "began")
    began = [cluster.notes(job, "began") for job in gated]
    assert {len(notes) for notes in began} == {1}
    pids = [notes[0]["pid"] for notes in began]
    assert {pids.count(pid) for pid in pids} == {2}
    assert len({notes[0]["node"] for notes in began}) == 2
    for job in gated:
        cluster.open(job)
    jobs = [cluster.enqueue("quick", body={"n": n}) for n in range(40)]
    assert [cluster.done(job).attempts for job in [*gated, *jobs]] == [0] * 48
    assert sorted(event["task"] for event in cluster.notes(event="ran")) == [job.id for job in jobs]


def test_a_pinned_task_runs_on_its_node_only(cluster: Cluster) -> None:
    cluster.up("one", "two")
    jobs = [cluster.enqueue("quick", node="two") for _ in range(10)]
    for job in jobs:
        cluster.done(job)
    assert {event["node"] for event in cluster.notes(event="ran")} == {"two"}


def test_a_drained_node_finishes_what_it_has_and_takes_nothing_new(cluster: Cluster) -> None:
    cluster.up("one", "two", count=20)
    held = cluster.enqueue("gated", node="one")
    cluster.wait_for(held, "began")
    cluster.client.nodes.drain("one")
    jobs = [cluster.enqueue("quick") for _ in range(10)]
    for job in jobs:
        cluster.done(job)
    assert {event["node"] for event in cluster.notes(event="ran")} == {"two"}
    cluster.open(held)
    assert cluster.done(held).attempts == 0
    pinned = cluster.enqueue("quick", node="one")
    cluster.client.nodes.undrain("one")
    cluster.done(pinned)


def test_a_worker_that_is_not_enabled_is_not_started_and_one_that_leaves_is_not_restarted(cluster: Cluster) -> None:
    leaver = {"worker": "jobs:Leaver", "update": "1s"}
    [node] = cluster.up("one", workers={"jobs": WORKER, "off": {**leaver, "enabled": False}, "leaver": leaver})
    eventually(lambda: node.slot("leaver-1")["state"] == "EXITED", timeout=WITHIN, message=node.log_text)
    cluster.done(cluster.enqueue("quick"))
    eventually(
        lambda: {process.slot for process in cluster.client.nodes.processes()} == {"agent", "manager", "jobs-1"},
        timeout=WITHIN,
    )
    ended = eventually(
        lambda: [line for line in node.log_text().splitlines() if "process ended" in line], timeout=WITHIN
    )
    assert ["info" in line and "exit status 0" in line for line in ended] == [True], "it is no error to leave"
    assert node.slot("leaver-1")["state"] == "EXITED"


def test_canceling_a_running_task_kills_its_process_and_what_that_had_started(cluster: Cluster) -> None:
    cluster.up("one")
    job = cluster.enqueue("program")
    began = cluster.wait_for(job, "began")
    assert is_alive(began["pid"])
    assert is_alive(began["child"])
    cluster.client.tasks.cancel(job.id, "not needed")
    for pid in (began["pid"], began["child"]):
        eventually(lambda pid=pid: not is_alive(pid), timeout=WITHIN, message=cluster.describe)  # type: ignore[misc]
    assert cluster.client.tasks.get(job.id).status is Status.CANCELED


def test_a_handlers_process_that_is_killed_after_it_has_forked_is_a_failure_at_once(cluster: Cluster) -> None:
    cluster.up("one", count=1)
    job = cluster.enqueue("forks")
    began = cluster.wait_for(job, "began")
    os.kill(began["pid"], signal.SIGKILL)
    task = cluster.done(job)
    assert (task.attempts, task.lease) == (1, 2)
    [attempt] = cluster.client.tasks.attempts(job.id)
    assert (attempt.outcome, attempt.error) == (
        "failure",
        "HandlerProcessDied: the handler's process was killed by SIGKILL before it answered",
    )
    assert not is_alive(began["child"])


def test_a_running_task_moves_to_another_node_at_once(cluster: Cluster) -> None:
    cluster.up("one", "two")
    job = cluster.enqueue("first_hangs", node="one")
    cluster.wait_for(job, "began")
    cluster.client.tasks.move(job.id, "two")
    cluster.done(job)
    assert job.refresh().result()["node"] == "two"
    assert cluster.wait_for(job, "cancelled")["node"] == "one"
    assert cluster.client.tasks.get(job.id).attempts == 0


def test_stopping_finishes_what_ends_within_the_grace(cluster: Cluster) -> None:
    [node] = cluster.up("one", node={"grace": "30s"})
    job = cluster.enqueue("gated")
    later = cluster.enqueue("gated", start_in=0.2)
    cluster.wait_for(job, "began")
    cluster.wait_for(later, "began")
    master = node.master
    assert master is not None
    master.send_signal(signal.SIGTERM)
    eventually(lambda: node.slot("jobs-1")["state"] == "DRAINING", timeout=WITHIN, message=node.log_text)
    never = cluster.enqueue("quick")
    cluster.open(job)
    cluster.open(later)
    assert master.wait(WITHIN) == 0
    statuses = [cluster.client.tasks.get(one.id).status for one in (job, later, never)]
    assert statuses == [Status.DONE, Status.DONE, Status.PENDING]
    assert cluster.client.nodes.list()[0].incarnation is None


def test_what_does_not_end_within_the_grace_is_released_and_not_counted(cluster: Cluster) -> None:
    [node] = cluster.up("one", node={"grace": "200ms"})
    job = cluster.enqueue("gated")
    cluster.wait_for(job, "began")
    assert node.stop() == 0
    task = cluster.client.tasks.get(job.id)
    assert (task.status, task.attempts, task.crashes) == (Status.PENDING, 0, 0)
    assert [outcome for outcome, _ in cluster.outcomes(job)] == ["released"]
    assert cluster.wait_for(job, "cancelled")


def test_a_periodic_worker_whose_round_does_not_end_exits_with_status_0(cluster: Cluster) -> None:
    [node] = cluster.up("one", workers={"endless": {"worker": "jobs:Endless", "update": "1s"}}, node={"grace": "200ms"})
    assert node.stop() == 0
    assert "Traceback" not in node.log_text()
    causes = {process.slot: process.cause for process in cluster.client.nodes.processes(ended=True)}
    assert causes["endless-1"] == "exit status 0"


def test_the_task_of_a_thread_that_does_not_end_is_released_when_its_process_is_dead(cluster: Cluster) -> None:
    [node] = cluster.up("one", node={"grace": "200ms"})
    job = cluster.enqueue("deaf")
    pid = cluster.wait_for(job, "began")["pid"]
    master = node.master
    assert master is not None
    master.send_signal(signal.SIGTERM)

    def released() -> bool:
        alive = is_alive(pid)  # checked first: while it lives, no other process may have the task
        status = cluster.client.tasks.get(job.id).status
        assert status is Status.WORKING if alive else True
        return status is Status.PENDING

    eventually(released, timeout=WITHIN, message=cluster.describe)
    assert master.wait(WITHIN) == 0
    task = cluster.client.tasks.get(job.id)
    assert (task.attempts, task.crashes) == (0, 0)
    assert [outcome for outcome, _ in cluster.outcomes(job)] == ["released"]
    cluster.up("two")
    assert cluster.done(job).lease == 2
