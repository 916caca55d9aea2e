"""The database goes away, and comes back: a node stays up, nothing is rescued that lives, every task ends."""

from __future__ import annotations

import time
from functools import partial

import pytest
import sqlalchemy as sa

from peerd.domain.lifecycle import Status
from peerd.store.schema.tables import tasks
from peerd.store.schema.types import seconds_from_now
from peerd.testing import eventually
from tests.cluster.cluster import MAX_UPDATE, WITHIN, Cluster, ClusterNode
from tests.cluster.conftest import MakeCluster
from tests.support.server import DatabaseServer
from tests.support.servers import ServerFactory


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_outage_longer_than_max_update_rescues_nothing_that_lives_and_what_died_is_replaced(
    private_server: ServerFactory, make_cluster: MakeCluster
) -> None:
    server = private_server("postgresql")
    cluster = make_cluster(server.url("peerd"))
    [node] = cluster.up("one", count=8)
    _see_that_rescues_are_allowed(cluster)
    for begin, end in ((server.freeze, server.thaw), (server.kill, server.start)):
        before = {process.id for process in cluster.client.nodes.processes()}
        held = [cluster.enqueue("gated") for _ in range(4)]
        for job in held:
            cluster.wait_for(job, "began")
        ends_meanwhile = held[:2]
        for job in ends_meanwhile:
            cluster.open(job)
        begin()
        time.sleep(MAX_UPDATE + 2)  # the length of the outage is what is tested
        end()
        late = [cluster.enqueue("quick") for _ in range(3)]
        for job in ends_meanwhile + late:
            assert cluster.done(job).attempts == 0
        for job in held[2:]:
            assert cluster.client.tasks.get(job.id).status is Status.WORKING
            cluster.open(job)
            assert cluster.done(job).lease == 1
        assert [cluster.outcomes(job) for job in held] == [[]] * 4
        assert [len(cluster.notes(job, "began")) for job in held] == [1] * 4
        assert {process.id for process in cluster.client.nodes.processes()} == before
    assert node.state() == "running"
    _kill_what_waits_for_the_database(cluster, server)


@pytest.mark.slow
def test_a_log_that_takes_nothing_harms_no_task_no_process_and_no_heartbeat(
    private_server: ServerFactory, make_cluster: MakeCluster
) -> None:
    server = private_server("postgresql")
    cluster = make_cluster(server.url("peerd"))
    [node] = cluster.up("one", sections={"logging": {"file": "/dev/full"}, "alerts.none": {"log": True}})
    pids = {slot["name"]: slot["pid"] for slot in node.slots()}
    for _ in range(2):
        for job in [cluster.enqueue(name) for name in ("prints", "prints_in_a_process", "quick") * 3]:
            task = cluster.done(job)
            assert (task.attempts, task.crashes) == (0, 0)
        server.kill()
        time.sleep(2.0)  # an outage that each process of the node reports to the log
        server.start()
    [before] = cluster.client.nodes.list()
    eventually(lambda: cluster.client.nodes.list()[0].checked_at != before.checked_at, timeout=WITHIN)
    assert {slot["name"]: slot["pid"] for slot in node.slots()} == pids
    eventually(
        lambda: any("No space left" in alert.text for alert in cluster.client.alerts.list().items), timeout=WITHIN
    )


def _kill_what_waits_for_the_database(cluster: Cluster, server: DatabaseServer) -> None:
    """What is replaced during an outage is there as soon as the database is."""
    node = cluster.nodes[0]
    held = cluster.enqueue("gated")
    cluster.wait_for(held, "began")
    server.kill()
    killed = {slot: node.kill(slot) for slot in ("agent", "manager", "jobs-1")}
    for slot, pid in killed.items():
        eventually(partial(_waits_for_the_database, node, slot, pid), timeout=WITHIN, message=node.log_text)
    server.start()
    for slot, pid in killed.items():
        eventually(node.replaced(slot, pid), timeout=WITHIN, message=node.log_text)
        assert node.slot(slot)["generation"] == 2, "the one that waited is the one that runs"
    cluster.open(held)
    assert cluster.done(held).crashes == 1
    pids = {slot["pid"] for slot in node.slots()}
    beating = {process.pid for process in cluster.client.nodes.processes()}
    eventually(lambda: pids <= beating and not set(killed.values()) & beating, timeout=WITHIN)


def _waits_for_the_database(node: ClusterNode, slot: str, killed: int) -> bool:
    now = node.slot(slot)
    return now["state"] == "STARTING" and now["pid"] != killed and "does not answer" in (now["error"] or "")


def _see_that_rescues_are_allowed(cluster: Cluster) -> None:
    """A task whose holder never existed is released: the rescue and its right work again."""
    job = cluster.client.enqueue("no-worker-serves-this", max_attempts=9)
    orphaned = sa.update(tasks).where(tasks.c.id == job.id).values(status="working", checked_at=seconds_from_now(-60.0))
    cluster.client.database.run(lambda connection: connection.execute(orphaned).rowcount)
    cluster.wait_until(job, Status.PENDING)
    assert [outcome for outcome, _ in cluster.outcomes(job)] == ["rescued"]
