"""The hard limit of time: what does not end after its time-out ends with its process."""

from __future__ import annotations

import psutil
import pytest

from peerd.domain.lifecycle import Status
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster

LIMITS = {"timeout_grace": "300ms", "count": 4, "sections": {"alerts.log": {"log": True}}}


@pytest.mark.parametrize("handler", ["deaf", "swallows"])
def test_a_handler_that_does_not_return_after_its_timeout_ends_with_its_process(cluster: Cluster, handler: str) -> None:
    [node] = cluster.up("one", **LIMITS)
    held = cluster.enqueue("gated")
    old = cluster.wait_for(held, "began")["pid"]
    job = cluster.enqueue(handler, timeout=0.2)
    cluster.wait_for(job, "began")
    eventually(node.replaced("jobs-1", old), timeout=WITHIN, message=node.log_text)
    reason = f"task {job.id} (jobs/{handler}) did not return within 300ms after its timeout of 200ms"

    later = cluster.enqueue("quick")
    cluster.done(later)
    assert cluster.notes(later, "ran")[0]["pid"] != old, "it takes no new work"
    [leaving] = node.slot("jobs-1")["leaving"]
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


def test_what_outlives_the_grace_of_such_a_process_is_released_and_not_counted(cluster: Cluster) -> None:
    [node] = cluster.up("one", **LIMITS, grace="200ms")
    innocent = cluster.enqueue("deaf")
    old = cluster.wait_for(innocent, "began")["pid"]
    last = cluster.enqueue("deaf", timeout=0.2, max_attempts=1)
    task = cluster.wait_until(last, Status.DEAD)
    assert (task.attempts, task.crashes) == (1, 0)
    assert [outcome for outcome, _ in cluster.outcomes(last)] == ["timeout"]
    task = cluster.done(innocent)
    assert (task.attempts, task.crashes, task.lease) == (0, 0, 2)
    assert [outcome for outcome, _ in cluster.outcomes(innocent)] == ["released"]
    assert not psutil.pid_exists(old)
    assert f"task {last.id} (jobs/deaf) is dead" in node.log_text()


def test_a_thread_that_continues_after_its_finish_at_is_canceled_with_its_process(cluster: Cluster) -> None:
    cluster.up("one", **LIMITS)
    job = cluster.enqueue("deaf", finish_in=1.0)
    cluster.wait_for(job, "began")
    task = cluster.wait_until(job, Status.CANCELED)
    assert task.crashes == 0
    [attempt] = cluster.client.tasks.attempts(job.id)
    assert attempt.outcome == "canceled"
    assert attempt.error == "it did not return within 300ms after its finish_at; its process was ended"
