"""What a node that stops lets end, what it releases, and what its hooks still do."""

from __future__ import annotations

import re
import signal

import psutil

from peerd.domain.lifecycle import Status
from peerd.domain.schedule import RunStatus
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, WORKER, Cluster, ClusterNode
from tests.cluster.conftest import MakeCluster
from tests.support.servers import DatabaseFactory


def node_of(cluster: Cluster) -> ClusterNode:
    """A node whose `jobs` have time to end, and all others next to none."""
    workers = {
        "jobs": {**WORKER, "processes": 2, "grace": "30s"},
        "short": cluster.worker("short"),
        "stubborn": cluster.worker("stubborn"),
        "recycled": cluster.worker("recycled", recycle_after=1),
        "talking": cluster.worker("talking", "talking", grace=0),
        "endless": {"worker": "jobs:Endless", "update": "1s"},
    }
    slow = {"run": "scheduled:gated", "interval": "1h", "immediate": True, "workers": ["short"]}
    [node] = cluster.up("one", node={"grace": "200ms"}, workers=workers, schedules={"slow": slow})
    return node


def test_a_stop_finishes_and_counts_what_ends_within_the_grace_and_releases_all_else(
    make_cluster: MakeCluster, migrated_factory: DatabaseFactory
) -> None:
    cluster = make_cluster(migrated_factory("mariadb"))
    node = node_of(cluster)
    found = node.doorbell()
    assert (found["works"], "there is no secret" in found["reason"]) == (False, True), "the node polls, and says why"
    quick = [cluster.enqueue("quick") for _ in range(30)]
    failing, leaving = cluster.enqueue("fails_once"), cluster.enqueue("leaves_work_behind")
    for job in (*quick, failing, leaving):
        cluster.done(job)
    gated = [cluster.enqueue("gated"), cluster.enqueue("gated", start_in=0.2)]
    short, deaf, kept = (
        cluster.enqueue(*what) for what in (("gated", "short"), ("deaf", "stubborn"), ("gated", "recycled"))
    )
    began = {job: cluster.wait_for(job, "began")["pid"] for job in (*gated, short, deaf, kept)}
    cluster.done(cluster.enqueue("quick", "recycled"))
    eventually(node.replaced("recycled-1", began[kept]), timeout=WITHIN, message=node.log_text)
    talking = cluster.enqueue("stops", "talking")
    eventually(lambda: "line 20\n" in node.log_text(), timeout=WITHIN)
    eventually(lambda: cluster.notes(event="scheduled"), timeout=WITHIN, message=node.log_text)

    tracebacks = node.log_text().count("Traceback")
    node.signal_master(signal.SIGTERM)
    eventually(lambda: {slot["state"] for slot in node.slots("jobs")} == {"DRAINING"}, timeout=WITHIN)
    never = cluster.enqueue("quick")

    def released() -> bool:
        alive = psutil.pid_exists(began[deaf])  # checked first: while it lives, no other process may have the task
        status = cluster.client.tasks.get(deaf.id).status
        assert status is Status.WORKING if alive else True
        return status is Status.PENDING

    eventually(released, timeout=WITHIN, message=cluster.describe)
    assert not cluster.notes(leaving, "background ended")
    for job in (*gated, leaving):
        cluster.open(job)
    assert node.master is not None
    assert node.master.wait(WITHIN) == 0

    assert cluster.notes(leaving, "background ended")
    statuses = [cluster.client.tasks.get(job.id).status for job in (*gated, never)]
    assert statuses == [Status.DONE, Status.DONE, Status.PENDING]
    assert cluster.client.nodes.list()[0].incarnation is None
    summary = cluster.client.statistics.summary
    rows = {row.name: row.figures for row in summary("10m", by="handler") if row.queue == "jobs"}
    assert (rows["quick"].done, rows["fails_once"].done, rows["fails_once"].failed) == (30, 1, 1)
    assert rows["quick"].wait.count == rows["quick"].run.count == 30
    [by_node] = summary("10m", by="node")
    assert (by_node.node, by_node.figures.done) == ("one", 35)

    for job in (short, deaf, kept):  # another process may have claimed what one has released, before it stops
        task = cluster.client.tasks.get(job.id)
        assert (task.status, task.attempts, task.crashes) == (Status.PENDING, 0, 0)
        assert {outcome for outcome, _ in cluster.outcomes(job)} == {"released"}
    assert cluster.notes(short, "cancelled")
    [run] = cluster.client.schedules.runs("slow")
    assert run.status is RunStatus.CANCELED
    printed = re.findall(r"^line \d+$", node.log_text(), re.MULTILINE)
    assert [line.message for line in cluster.client.tasks.logs(talking.id, limit=1000).items] == printed, "all of them"
    causes = {process.slot: process.cause for process in cluster.client.nodes.processes(ended=True)}
    assert causes["endless-1"] == "exit status 0", "its round is ended in order"
    assert node.log_text().count("Traceback") == tracebacks
