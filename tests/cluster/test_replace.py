"""Processes and nodes that give way to others: recycled, tainted, replaced while they were frozen."""

from __future__ import annotations

import os
import signal
import time

import psutil

from peerd.domain.lifecycle import Status
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster


def test_a_process_is_recycled_after_so_many_tasks_and_loses_none(cluster: Cluster) -> None:
    [node] = cluster.up("one", recycle_after=5, count=2)
    first = node.pid("jobs-1")
    jobs = [cluster.enqueue("quick") for _ in range(30)]
    for job in jobs:
        assert cluster.done(job).attempts == 0
    eventually(node.replaced("jobs-1", first), timeout=WITHIN, message=node.log_text)
    ran = [event["task"] for event in cluster.notes(event="ran")]
    assert sorted(ran) == [job.id for job in jobs]
    assert {outcome for job in jobs for outcome, _ in cluster.outcomes(job)} <= {"released"}, "before they began"
    eventually(lambda: len({p.id for p in cluster.client.nodes.processes(ended=True) if p.slot == "jobs-1"}) > 1)


def test_a_recycled_process_finishes_what_it_runs_however_long_that_takes(cluster: Cluster) -> None:
    [node] = cluster.up("one", recycle_after=1, count=3, grace="200ms")
    kept = [cluster.enqueue(handler, max_attempts=1) for handler in ("gated", "gated_thread")]
    first, _ = [cluster.wait_for(job, "began")["pid"] for job in kept]
    cluster.done(cluster.enqueue("quick"))
    eventually(node.replaced("jobs-1", first), timeout=WITHIN, message=node.log_text)
    [leaving] = node.slot("jobs-1")["leaving"]
    assert (leaving["pid"], leaving["reason"]) == (first, "it has run 1 tasks (recycle_after = 1)")
    later = cluster.enqueue("quick")
    cluster.done(later)
    assert cluster.notes(later, "ran")[0]["pid"] != first, "it takes no new work"
    began = time.monotonic()
    eventually(lambda: time.monotonic() - began > 8.0, timeout=WITHIN)  # grace, time to release, and to be killed
    for job in kept:
        cluster.open(job)
        task = cluster.done(job)
        assert (task.attempts, task.lease, cluster.outcomes(job)) == (0, 1, [])
    assert cluster.notes(event="cancelled") == []
    assert kept[1].refresh().result() is False, "it was not cancelled"
    eventually(lambda: not psutil.pid_exists(first), timeout=WITHIN, message=node.log_text)


def test_a_process_that_is_killed_while_it_is_recycled_has_crashed(cluster: Cluster) -> None:
    [node] = cluster.up("one", recycle_after=1, count=3, grace="200ms", drain_timeout="1h")
    job = cluster.enqueue("first_hangs")
    first = cluster.wait_for(job, "began")["pid"]
    cluster.done(cluster.enqueue("quick"))
    eventually(node.replaced("jobs-1", first), timeout=WITHIN, message=node.log_text)
    os.kill(first, signal.SIGKILL)
    assert cluster.done(job).crashes == 1
    [(outcome, cause)] = cluster.outcomes(job)
    assert outcome == "crash"
    assert str(cause).startswith("killed by SIGKILL while it was recycled")


def test_what_outlives_the_drain_timeout_of_a_recycled_process_is_released_and_not_counted(cluster: Cluster) -> None:
    [node] = cluster.up("one", recycle_after=1, count=3, grace="200ms", drain_timeout="100ms")
    job = cluster.enqueue("deaf", max_attempts=1)
    first = cluster.wait_for(job, "began")["pid"]
    cluster.done(cluster.enqueue("quick"))
    task = cluster.done(job)
    assert not psutil.pid_exists(first)
    assert (task.attempts, task.crashes, task.lease) == (0, 0, 2)
    assert [outcome for outcome, _ in cluster.outcomes(job)] == ["released"]
    assert node.state() == "running"


def test_a_node_that_stops_leaves_a_recycled_process_its_grace(cluster: Cluster) -> None:
    [node] = cluster.up("one", recycle_after=1, count=3, grace="300ms")
    job = cluster.enqueue("gated")
    first = cluster.wait_for(job, "began")["pid"]
    cluster.done(cluster.enqueue("quick"))
    eventually(node.replaced("jobs-1", first), timeout=WITHIN, message=node.log_text)
    assert node.stop() == 0
    task = cluster.client.tasks.get(job.id)
    assert (task.status, task.attempts) == (Status.PENDING, 0)
    # Its successor may claim what it releases, before it stops too.
    assert {outcome for outcome, _ in cluster.outcomes(job)} == {"released"}


def test_a_tainted_process_is_replaced_at_once_and_finishes_what_it_has(cluster: Cluster) -> None:
    [node] = cluster.up("one", count=3)
    held = cluster.enqueue("gated")
    began = cluster.wait_for(held, "began")
    cluster.done(cluster.enqueue("taints"))
    eventually(node.replaced("jobs-1", began["pid"]), timeout=WITHIN, message=node.log_text)
    later = cluster.enqueue("quick")
    cluster.done(later)
    assert cluster.notes(later, "ran")[0]["pid"] != began["pid"]
    assert psutil.pid_exists(began["pid"])
    cluster.open(held)
    assert cluster.done(held).attempts == 0
    assert len(cluster.notes(held, "began")) == 1
    eventually(lambda: not psutil.pid_exists(began["pid"]), timeout=WITHIN, message=node.log_text)


def test_a_node_that_was_replaced_while_it_was_frozen_leaves_when_it_thaws(cluster: Cluster) -> None:
    [old] = cluster.up("one")
    job = cluster.enqueue("first_hangs")
    cluster.wait_for(job, "began")
    assert old.master is not None
    all_pids = old.all_pids()
    cluster.freeze(all_pids)
    try:
        new = cluster.node("one", node={"run_directory": str(cluster.folder / "elsewhere")}).up()
        task = cluster.done(job)
    finally:
        cluster.thaw(all_pids)
    assert old.master.wait(WITHIN) == 0
    assert "this node was replaced, and stops" in old.log_text()
    assert new.state() == "running"
    assert cluster.client.tasks.get(job.id) == task
    assert task.status is Status.DONE
    cluster.done(cluster.enqueue("quick"))
