"""Handlers of real nodes that write to other processes, and leave work in the background."""

from __future__ import annotations

import signal

from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster


def test_a_handler_writes_to_the_handlers_of_the_nodes_other_processes(cluster: Cluster) -> None:
    cluster.up("one", processes=2, count=3)
    listening = [cluster.enqueue("hears") for _ in range(4)]
    for job in listening:
        cluster.wait_for(job, "listens")
    reply = cluster.enqueue("tells", body={"data": "it rains"}).result(timeout=WITHIN)
    assert reply["reached"] == 2
    received = [job.result(timeout=WITHIN) for job in listening]
    assert {one["data"] for one in received} == {"it rains"}
    assert {one["sender"] for one in received} == {reply["pid"]}
    assert {one["slot"] for one in received} == {"jobs-1", "jobs-2"}


def test_work_in_the_background_is_awaited_when_its_process_stops(cluster: Cluster) -> None:
    [node] = cluster.up("one")
    job = cluster.enqueue("leaves_work_behind")
    cluster.done(job)
    assert node.master is not None
    node.master.send_signal(signal.SIGTERM)
    eventually(lambda: node.slot("jobs-1")["state"] == "DRAINING", timeout=WITHIN, message=node.log_text)
    assert not cluster.notes(job, "background ended")
    cluster.open(job)
    assert node.master.wait(WITHIN) == 0
    assert cluster.notes(job, "background ended")
