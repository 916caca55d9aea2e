"""What a node that stops lets end, what it releases, and what its hooks still do."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress

from peerd.domain.lifecycle import Status
from peerd.domain.schedule import RunStatus
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, WORKER, Cluster
from tests.cluster.conftest import MakeCluster
from tests.support.servers import DatabaseFactory


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_a_stop_finishes_what_ends_within_the_grace_and_counts_it(cluster: Cluster) -> None:
    [node] = cluster.up("one", node={"grace": "30s"}, processes=2)
    quick = [cluster.enqueue("quick") for _ in range(30)]
    failing, leaving = cluster.enqueue("fails_once"), cluster.enqueue("leaves_work_behind")
    for job in (*quick, failing, leaving):
        cluster.done(job)
    gated = [cluster.enqueue("gated"), cluster.enqueue("gated", start_in=0.2)]
    for job in gated:
        cluster.wait_for(job, "began")
    node.signal_master(signal.SIGTERM)
    eventually(lambda: {slot["state"] for slot in node.slots("jobs")} == {"DRAINING"}, timeout=WITHIN)
    never = cluster.enqueue("quick")
    assert not cluster.notes(leaving, "background ended")
    for job in (*gated, leaving):
        cluster.open(job)
    assert node.master is not None
    assert node.master.wait(WITHIN) == 0
    assert cluster.notes(leaving, "background ended")
    statuses = [cluster.client.tasks.get(one.id).status for one in (*gated, never)]
    assert statuses == [Status.DONE, Status.DONE, Status.PENDING]
    assert cluster.client.nodes.list()[0].incarnation is None

    rows = {row.name: row.figures for row in cluster.client.statistics.summary("10m", by="handler")}
    assert (rows["quick"].done, rows["fails_once"].done, rows["fails_once"].failed) == (30, 1, 1)
    assert rows["quick"].wait.count == rows["quick"].run.count == 30
    [by_node] = cluster.client.statistics.summary("10m", by="node")
    assert (by_node.node, by_node.figures.done) == ("one", 34)


def test_what_does_not_end_within_the_grace_is_released_and_not_counted(
    make_cluster: MakeCluster, migrated_factory: DatabaseFactory
) -> None:
    cluster = make_cluster(migrated_factory("mariadb"))
    workers = {
        "jobs": WORKER,
        "stubborn": cluster.worker("stubborn"),
        "recycled": cluster.worker("recycled", recycle_after=1),
        "talking": cluster.worker("talking", "talking", grace=0),
        "endless": {"worker": "jobs:Endless", "update": "1s"},
    }
    slow = {"run": "scheduled:gated", "interval": "1h", "immediate": True, "workers": ["jobs"]}
    [node] = cluster.up("one", node={"grace": "200ms"}, workers=workers, schedules={"slow": slow})
    job, deaf, kept = (cluster.enqueue(*what) for what in (("gated",), ("deaf", "stubborn"), ("gated", "recycled")))
    pid = cluster.wait_for(deaf, "began")["pid"]
    cluster.wait_for(job, "began")
    first = cluster.wait_for(kept, "began")["pid"]
    cluster.done(cluster.enqueue("quick", "recycled"))
    eventually(node.replaced("recycled-1", first), timeout=WITHIN, message=node.log_text)
    talking = cluster.enqueue("stops", "talking")
    eventually(lambda: "line 20\n" in node.log_text(), timeout=WITHIN)
    eventually(lambda: cluster.notes(event="scheduled"), timeout=WITHIN, message=node.log_text)
    node.signal_master(signal.SIGTERM)

    def released() -> bool:
        alive = is_alive(pid)  # checked first: while it lives, no other process may have the task
        status = cluster.client.tasks.get(deaf.id).status
        assert status is Status.WORKING if alive else True
        return status is Status.PENDING

    eventually(released, timeout=WITHIN, message=cluster.describe)
    assert node.master is not None
    assert node.master.wait(WITHIN) == 0
    for one in (
        job,
        deaf,
        kept,
    ):  # the successor of a recycled process may claim what that one releases, before it stops
        task = cluster.client.tasks.get(one.id)
        assert (task.status, task.attempts, task.crashes) == (Status.PENDING, 0, 0)
        assert {outcome for outcome, _ in cluster.outcomes(one)} == {"released"}
    assert cluster.wait_for(job, "cancelled")
    [run] = cluster.client.schedules.runs("slow")
    assert run.status is RunStatus.CANCELED
    printed = re.findall(r"^line \d+$", node.log_text(), re.MULTILINE)
    assert [line.message for line in cluster.client.tasks.logs(talking.id, limit=1000).items] == printed, "all of them"
    causes = {process.slot: process.cause for process in cluster.client.nodes.processes(ended=True)}
    assert causes["endless-1"] == "exit status 0", "its round is ended in order"
    assert "Traceback" not in node.log_text()
