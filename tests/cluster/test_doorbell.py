"""The doorbell between real nodes. A worker polls once here, and then not for a minute: a quick start is due to a ring.

PostgreSQL carries the rings itself; test_steering and test_gateway have nodes whose rings are datagrams.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from peerd import Client, Job
from peerd.domain.lifecycle import Status
from peerd.domain.ring import Broadcast
from peerd.doorbell.datagram import ALL_NODES, Signer, encode_text
from peerd.doorbell.wake_ups import SOCKET_PREFIX
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster, ClusterNode
from tests.cluster.conftest import MakeCluster

SECRET = "a secret that all nodes share"
RING_DEADLINE = 30.0
"""Seconds, on a busy machine; a poll would come after forty-five at the least."""
RARE_POLLING: dict[str, Any] = {
    "poll_every": "60s",
    "rung_poll_every": "60s",
    "update": "100s",
    "manager": {"every": "60s", "inactive_after": "120s", "max_update": "300s"},
}
INSERT = sa.text("INSERT INTO tasks (queue, name, body) VALUES ('jobs', 'quick', '{}')")


@pytest.fixture(scope="module")
def shared(module_cluster: MakeCluster) -> Cluster:
    """Nodes `one` and `two`, whose workers poll once, and then wait for a ring."""
    cluster = module_cluster("postgresql")
    cluster.environment["FIRST_PAUSE"] = "60"
    cluster.client.close()
    cluster.client = Client(cluster.url, secret=SECRET)
    for node in cluster.up("one", "two", **RARE_POLLING, sections={"cluster": {"secret": SECRET}}):
        node.wait_for_doorbell()
    return cluster


def soon(cluster: Cluster, job: Job, event: str, times: int = 1) -> None:
    eventually(lambda: len(cluster.notes(job, event)) == times, timeout=RING_DEADLINE, message=cluster.describe)


def ran_soon(cluster: Cluster, task: int) -> None:
    def is_done() -> bool:
        return cluster.client.tasks.get(task).status is Status.DONE

    eventually(is_done, timeout=RING_DEADLINE, message=cluster.describe)


def test_a_ring_does_not_wait_for_the_master(cluster: Cluster, node: ClusterNode) -> None:
    node.signal_master(signal.SIGSTOP)
    try:
        soon(cluster, cluster.enqueue("quick", node="one"), "ran")
    finally:
        node.signal_master(signal.SIGCONT)


def test_a_process_without_a_wake_up_socket_is_woken_by_the_master_and_a_killed_one_leaves_none(
    cluster: Cluster, node: ClusterNode
) -> None:
    def wake_up_sockets() -> list[Path]:
        return list(node.run_directory.glob(f"{SOCKET_PREFIX}*"))

    [wake_up_socket] = wake_up_sockets()
    node.kill("jobs-1")
    eventually(lambda: wake_up_socket not in wake_up_sockets() and len(wake_up_sockets()) == 1, timeout=WITHIN)
    eventually(node.is_complete, timeout=WITHIN)
    soon(cluster, cluster.enqueue("quick", node="one"), "ran")
    [wake_up_socket] = wake_up_sockets()
    wake_up_socket.unlink()
    soon(cluster, cluster.enqueue("quick", node="one"), "ran")
    node.kill("jobs-1")  # the next one has a socket again


def test_a_ring_goes_out_after_the_commit_and_not_after_a_rollback(cluster: Cluster, node: ClusterNode) -> None:
    with cluster.client.database.engine.connect() as connection:
        cluster.client.enqueue_in(connection, "jobs", name="quick")
        assert cluster.client.notifier.flush()
        received = node.doorbell()["rings_received"]
        connection.rollback()
        job = cluster.client.enqueue_in(connection, "jobs", name="quick")
        assert cluster.client.notifier.flush()
        assert node.doorbell()["rings_received"] == received
        connection.commit()
        soon(cluster, job, "ran")


def test_raw_sql_is_rung_for_by_hand_and_a_resumed_queue_by_itself(cluster: Cluster) -> None:
    cluster.client.queues.pause("jobs")
    with cluster.client.database.engine.begin() as connection:
        connection.execute(INSERT)
    [task, *_] = cluster.client.tasks.list()
    cluster.client.ring("jobs")
    cluster.client.notifier.flush()
    assert cluster.client.tasks.get(task.id).status is Status.PENDING
    cluster.client.queues.resume("jobs")
    ran_soon(cluster, task.id)
    with cluster.client.database.engine.begin() as connection:
        connection.execute(INSERT)
    [later, *_] = cluster.client.tasks.list()  # a process that has just ended a task may have claimed it already
    cluster.client.ring("jobs")
    ran_soon(cluster, later.id)


def test_a_task_a_retry_and_a_task_of_a_schedule_begin_when_they_fall_due(cluster: Cluster) -> None:
    first, second = cluster.enqueue("quick", start_in=3600), cluster.enqueue("quick", start_in=1.0)
    task = cluster.done(second, within=RING_DEADLINE)
    assert task.worker_started_at is not None
    assert task.start_at is not None
    assert timedelta(0) <= task.worker_started_at - task.start_at < timedelta(seconds=RING_DEADLINE)
    assert cluster.client.tasks.get(first.id).status is Status.SCHEDULED
    cluster.done(cluster.enqueue("fails_once"), within=RING_DEADLINE)
    cluster.client.schedules.create("often", queue="jobs", task="quick", interval="2s")
    try:
        eventually(lambda: len(cluster.notes(event="ran")) > 2, timeout=RING_DEADLINE, message=cluster.describe)
    finally:
        cluster.client.schedules.delete("often")


def test_a_canceled_task_is_ended_at_once_and_one_that_is_moved_or_whose_process_dies_continues_elsewhere(
    cluster: Cluster,
) -> None:
    canceled = cluster.enqueue("gated", node="one")
    soon(cluster, canceled, "began")
    cluster.client.tasks.cancel(canceled.id)
    soon(cluster, canceled, "cancelled")
    moved = cluster.enqueue("gated", node="one")
    soon(cluster, moved, "began")
    cluster.client.tasks.move(moved.id, None)
    soon(cluster, moved, "began", times=2)
    cluster.claiming_node(moved).kill("jobs-1")
    soon(cluster, moved, "began", times=3)


def test_a_ring_or_message_with_another_secret_is_refused_and_reported(cluster: Cluster, node: ClusterNode) -> None:
    listening = [cluster.enqueue("hears", node=name) for name in ("one", "two", "two")]
    for job in listening:
        soon(cluster, job, "listens")
    before = sum(node.doorbell()["refused"].values())
    signed = encode_text(Signer("quite another secret", time.time).sign(Broadcast("news", "forged"), ALL_NODES))
    for payload in ('{"type":"broadcast","action":"news","data":"forged"}', signed):
        with cluster.client.database.engine.begin() as connection:
            connection.execute(sa.text("SELECT pg_notify('peerd', :payload)"), {"payload": payload})
    eventually(lambda: sum(node.doorbell()["refused"].values()) == before + 2, timeout=WITHIN)
    found = node.doorbell()
    assert found["refused"]["it was made with another secret"] >= 1
    assert found["works"], "it has no effect on the state of the doorbell"
    cluster.enqueue("tells_all_nodes", body={"data": "hello"})
    assert [job.result(timeout=WITHIN)["data"] for job in listening] == ["hello"] * 3, "all nodes, each once"


def test_a_replaced_agent_and_a_lost_listening_connection_receive_again(cluster: Cluster, node: ClusterNode) -> None:
    address = node.doorbell()["address"]
    pid = node.kill("agent")
    eventually(node.replaced("agent", pid), timeout=WITHIN)
    node.wait_for_doorbell()
    assert node.doorbell()["address"] == address
    soon(cluster, cluster.enqueue("quick", node="one"), "ran")
    database = cluster.client.database
    ours = "datname = current_database() AND query = 'LISTEN peerd'"
    kill = sa.text(f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {ours}")
    with database.engine.connect() as connection:
        assert connection.execute(kill).scalar() == 2

    def has_noticed(one: ClusterNode) -> Callable[[], bool]:
        return lambda: not one.doorbell()["works"] or "doorbell is not known to work" in one.log_text()

    for one in cluster.nodes:
        eventually(has_noticed(one), timeout=WITHIN)
        one.wait_for_doorbell()
    soon(cluster, cluster.enqueue("quick"), "ran")
    with database.engine.begin() as connection:  # and what a person rings
        connection.execute(INSERT)
        connection.execute(sa.text("NOTIFY peerd, 'jobs'"))
    ran_soon(cluster, cluster.client.tasks.list()[0].id)
