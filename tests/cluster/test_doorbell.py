"""The doorbell between real nodes. A worker polls once here, and then not for a minute: a quick start is due to a ring.

All tests of a database share two nodes.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from peerd import Client, Job
from peerd.domain.lifecycle import Status
from peerd.domain.ring import Broadcast
from peerd.doorbell.datagram import ALL_NODES, Signer, encode_text
from peerd.doorbell.wake_up_socket import SOCKET_PREFIX
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster, ClusterNode
from tests.cluster.conftest import MakeCluster, end
from tests.support.servers import DatabaseFactory

SECRET = "a secret that all nodes share"
RING_DEADLINE = 30.0
"""Seconds, on a busy machine; a poll would come after forty-five at the least."""
RARE_POLLING: dict[str, Any] = {
    "poll_every": "60s",
    "rung_poll_every": "60s",
    "update": "100s",
    "manager": {"every": "60s", "inactive_after": "120s", "max_update": "300s"},
}


pytestmark = pytest.mark.every_database


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, module_database: str) -> Iterator[Cluster]:
    """Nodes `one` and `two`, whose workers poll once, and then wait for a ring. On SQLite they have no secret."""
    folder = tmp_path_factory.mktemp("pair") / "cluster"
    folder.mkdir()
    cluster = Cluster(folder, module_database)
    cluster.environment["FIRST_PAUSE"] = "60"
    sections = {}
    if cluster.client.database.name != "sqlite":
        sections["cluster"] = {"secret": SECRET}
        cluster.client.close()
        cluster.client = Client(cluster.url, secret=SECRET)
    try:
        for node in cluster.up("one", "two", **RARE_POLLING, sections=sections):
            node.wait_for_doorbell()
        yield cluster
    finally:
        end(cluster)


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    """As for other modules; but a fixture for each database must be named."""
    return shared.reset()


def soon(cluster: Cluster, job: Job, event: str) -> None:
    eventually(lambda: cluster.notes(job, event), timeout=RING_DEADLINE, message=cluster.describe)


def test_what_is_enqueued_is_begun_at_once_by_whichever_node(cluster: Cluster) -> None:
    for name in ("one", "two", "one"):
        soon(cluster, cluster.enqueue("quick", node=name), "ran")


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


def test_raw_sql_is_rung_for_by_hand(cluster: Cluster) -> None:
    with cluster.client.database.engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO tasks (queue, name, body) VALUES ('jobs', 'quick', '{}')"))
    [task, *_] = cluster.client.tasks.list()
    cluster.client.ring("jobs")
    eventually(
        lambda: cluster.client.tasks.get(task.id).status is Status.DONE,
        timeout=RING_DEADLINE,
        message=cluster.describe,
    )


def test_a_task_and_a_retry_begin_when_they_fall_due(cluster: Cluster) -> None:
    first = cluster.enqueue("quick", start_in=3600)
    second = cluster.enqueue("quick", start_in=1.0)
    third = cluster.enqueue("quick", start_at=datetime.now(UTC) + timedelta(seconds=1.5))
    for job in (second, third):
        task = cluster.done(job, within=RING_DEADLINE)
        assert task.worker_started_at is not None
        assert task.start_at is not None
        assert timedelta(0) <= task.worker_started_at - task.start_at < timedelta(seconds=RING_DEADLINE)
    assert cluster.client.tasks.get(first.id).status is Status.SCHEDULED
    retried = cluster.enqueue("fails_once")
    cluster.done(retried, within=RING_DEADLINE)


def test_a_canceled_task_is_ended_at_once_and_a_moved_one_continues_elsewhere(cluster: Cluster) -> None:
    canceled = cluster.enqueue("gated", node="one")
    soon(cluster, canceled, "began")
    cluster.client.tasks.cancel(canceled.id)
    soon(cluster, canceled, "cancelled")
    moved = cluster.enqueue("gated", node="one")
    soon(cluster, moved, "began")
    cluster.client.tasks.move(moved.id, "two")
    soon(cluster, moved, "cancelled")
    eventually(lambda: len(cluster.notes(moved, "began")) == 2, timeout=RING_DEADLINE, message=cluster.describe)


def test_what_a_node_releases_is_begun_by_another_at_once(cluster: Cluster) -> None:
    job = cluster.enqueue("gated", node="one")
    soon(cluster, job, "began")
    cluster.client.tasks.move(job.id, None)
    cluster.wait_for(job, "began", times=2)
    claiming_node = cluster.claiming_node(job)
    claiming_node.kill("jobs-1")
    eventually(lambda: len(cluster.notes(job, "began")) == 3, timeout=RING_DEADLINE, message=cluster.describe)


def test_a_task_of_a_schedule_is_begun_at_once(cluster: Cluster) -> None:
    cluster.client.schedules.create("often", queue="jobs", task="quick", interval="2s")
    try:
        eventually(lambda: len(cluster.notes(event="ran")) > 1, timeout=RING_DEADLINE, message=cluster.describe)
    finally:
        cluster.client.schedules.delete("often")


def test_a_resumed_queue_is_taken_from_at_once(cluster: Cluster) -> None:
    cluster.client.queues.pause("jobs")
    job = cluster.enqueue("quick")
    cluster.client.notifier.flush()
    assert cluster.client.tasks.get(job.id).status is Status.PENDING
    cluster.client.queues.resume("jobs")
    soon(cluster, job, "ran")


def test_a_message_reaches_the_workers_of_all_nodes_once(cluster: Cluster) -> None:
    listening = [cluster.enqueue("hears", node=name) for name in ("one", "two", "two")]
    for job in listening:
        soon(cluster, job, "listens")
    cluster.enqueue("tells_all_nodes", body={"data": "hello"})
    assert [job.result(timeout=WITHIN)["data"] for job in listening] == ["hello"] * 3


def test_a_ring_or_message_with_another_secret_is_refused_and_reported(cluster: Cluster, node: ClusterNode) -> None:
    listening = cluster.enqueue("hears", node="one")
    cluster.wait_for(listening, "listens")
    before = sum(node.doorbell()["refused"].values())
    forged = Broadcast("news", "forged")
    if cluster.client.database.name == "postgresql":
        signed = encode_text(Signer("quite another secret", time.time).sign(forged, ALL_NODES))
        for payload in ('{"type":"broadcast","action":"news","data":"forged"}', signed):
            with cluster.client.database.engine.begin() as connection:
                connection.execute(sa.text("SELECT pg_notify('peerd', :payload)"), {"payload": payload})
        refused = 2
    else:
        with Client(cluster.url, secret="quite another secret") as stranger:
            stranger.enqueue("nobody")
            assert stranger.notifier.flush()
        refused = 1
    eventually(lambda: sum(node.doorbell()["refused"].values()) == before + refused, timeout=WITHIN)
    found = node.doorbell()
    assert found["refused"]["it was made with another secret"] >= 1
    assert found["works"], "it has no effect on the state of the doorbell"
    if refused == 1:
        assert found["last_refused"] == "it was made with another secret, from 127.0.0.1"
        assert "a ring was refused: it was made with another secret" in node.log_text()
    cluster.enqueue("tells_all_nodes", body={"data": "hello"})
    assert listening.result(timeout=WITHIN)["data"] == "hello"


def test_a_replaced_agent_receives_again(cluster: Cluster, node: ClusterNode) -> None:
    address = node.doorbell()["address"]
    pid = node.kill("agent")
    eventually(node.replaced("agent", pid), timeout=WITHIN)
    node.wait_for_doorbell()
    assert node.doorbell()["address"] == address
    soon(cluster, cluster.enqueue("quick", node="one"), "ran")
    if cluster.client.database.name == "sqlite":
        assert address.startswith("127.0.0.1:"), "nothing needs to be configured"


def test_a_listening_connection_that_is_lost_is_opened_again(cluster: Cluster) -> None:
    database = cluster.client.database
    if database.name != "postgresql":
        pytest.skip("only PostgreSQL listens")
    ours = "datname = current_database() AND query = 'LISTEN peerd'"
    kill = sa.text(f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {ours}")
    with database.engine.connect() as connection:
        assert connection.execute(kill).scalar() == 2
    for node in cluster.nodes:
        eventually(
            lambda node=node: not node.doorbell()["works"] or "doorbell is not known to work" in node.log_text(),  # type: ignore[misc]
            timeout=WITHIN,
        )
        node.wait_for_doorbell()
    soon(cluster, cluster.enqueue("quick"), "ran")
    with database.engine.begin() as connection:  # and what a person rings
        connection.execute(sa.text("INSERT INTO tasks (queue, name, body) VALUES ('jobs', 'quick', '{}')"))
        connection.execute(sa.text("NOTIFY peerd, 'jobs'"))
    last = cluster.client.tasks.list()[0]
    eventually(lambda: cluster.client.tasks.get(last.id).status is Status.DONE, timeout=RING_DEADLINE)


@pytest.mark.slow
def test_without_a_secret_the_nodes_of_a_server_poll_and_report_the_reason(
    make_cluster: MakeCluster, migrated_factory: DatabaseFactory
) -> None:
    """SQLite has its own secret, PostgreSQL needs none."""
    cluster = make_cluster(migrated_factory("mariadb"))
    [node] = cluster.up("one")
    found = node.doorbell()
    assert not found["works"]
    assert "there is no secret" in found["reason"]
    cluster.done(cluster.enqueue("quick"))
