"""The doorbell between real nodes. A worker polls once here, and then not for a minute: a quick start is due to a ring.

Most of these tests share two nodes on each database (`idle_pair`); a test that leaves a node in another state than it
found it in has nodes of its own (`own`).
"""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from peerd import Client, Job
from peerd.domain.lifecycle import Status
from peerd.domain.ring import Broadcast
from peerd.doorbell.datagram import ALL_NODES, Signer, encode_text
from peerd.doorbell.wake_up_socket import SOCKET_PREFIX
from peerd.supervision.control import control_client
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster, ClusterNode
from tests.cluster.conftest import end
from tests.support import server_session
from tests.support.server import ServerUnavailableError
from tests.support.servers import DATABASES, create_database
from tests.support.summary import note_database, note_missing_server

SECRET = "a secret that all nodes share"
RING_DEADLINE = 30.0
"""Seconds, on a busy machine; a poll would come after forty-five at the least."""
RARE_POLLING: dict[str, Any] = {
    "poll_every": "60s",
    "rung_poll_every": "60s",
    "update": "100s",
    "manager": {"every": "60s", "inactive_after": "120s", "max_update": "300s"},
}


@pytest.fixture(scope="module", params=DATABASES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster | None]:
    """Nodes `one` and `two` on a database that the tests of this file share; None where it is not installed."""
    folder = tmp_path_factory.mktemp("pair")
    try:
        url = (
            f"sqlite:///{folder / 'peerd.sqlite'}"
            if request.param == "sqlite"
            else create_database(server_session.shared_server(request.param), f"bell_{secrets.token_hex(4)}")
        )
    except ServerUnavailableError:
        yield None
        return
    cluster = with_secret(Cluster(folder, url))
    try:
        up_with_working_doorbell(cluster, "one", "two")
        yield cluster
    finally:
        end(cluster)


@pytest.fixture
def idle_pair(request: pytest.FixtureRequest, pair: Cluster | None) -> Iterator[Cluster]:
    """The shared pair, with nothing to do and a client that has the secret."""
    kind = request.node.callspec.params["pair"]
    if pair is None:
        note_missing_server(request.node, kind)
        pytest.skip(f"NOT TESTED on {kind}: it is not installed")
    note_database(request.node, kind)
    yield pair
    pair.release_all()


@pytest.fixture
def own(each_cluster: Cluster) -> Cluster:
    """A cluster for one test, without nodes yet, whose client has the secret."""
    return with_secret(each_cluster)


def with_secret(cluster: Cluster) -> Cluster:
    """Its workers poll once, and then wait for a ring."""
    cluster.client.close()
    cluster.client = Client(cluster.url, secret=SECRET)
    cluster.environment["FIRST_PAUSE"] = "60"
    return cluster


def up(cluster: Cluster, *names: str, secret: str | None = SECRET) -> list[ClusterNode]:
    nodes = [
        cluster.node(name, **RARE_POLLING, sections={"cluster": {"secret": secret}} if secret else {}).start()
        for name in names
    ]
    for node in nodes:
        node.wait_until_running()
    return nodes


def bell(node: ClusterNode) -> dict[str, Any]:
    found: dict[str, Any] = control_client.call_agent(node.run_directory, "peerd.doorbell")
    return found


def up_with_working_doorbell(cluster: Cluster, *names: str) -> list[ClusterNode]:
    """Nodes whose doorbells are known to work, and whose workers have polled and found no task."""
    nodes = up(cluster, *names)
    for node in nodes:
        wait_for_bell(node)
    return nodes


def wait_for_bell(node: ClusterNode) -> None:
    eventually(lambda: bool(bell(node)["works"]), message=lambda: str(bell(node)))


def soon(cluster: Cluster, job: Job, event: str) -> None:
    eventually(lambda: cluster.notes(job, event), timeout=RING_DEADLINE, message=cluster.describe)


def test_what_is_enqueued_is_begun_at_once_by_whichever_node(idle_pair: Cluster) -> None:
    for name in ("one", "two", "one"):
        soon(idle_pair, idle_pair.enqueue("quick", node=name), "ran")


def test_a_ring_does_not_wait_for_the_master(idle_pair: Cluster) -> None:
    node = idle_pair.nodes[0]
    assert node.master is not None
    node.master.send_signal(signal.SIGSTOP)
    try:
        soon(idle_pair, idle_pair.enqueue("quick", node="one"), "ran")
    finally:
        node.master.send_signal(signal.SIGCONT)


@pytest.mark.one_database
def test_a_process_without_a_wake_up_socket_is_woken_by_the_master(own: Cluster) -> None:
    [node] = up_with_working_doorbell(own, "one")
    wake_up_sockets = list(node.run_directory.glob(f"{SOCKET_PREFIX}*"))
    assert wake_up_sockets
    for wake_up_socket in wake_up_sockets:
        wake_up_socket.unlink()
    soon(own, own.enqueue("quick"), "ran")


@pytest.mark.one_database
def test_a_killed_worker_leaves_no_wake_up_socket(own: Cluster) -> None:
    [node] = up_with_working_doorbell(own, "one")
    [wake_up_socket] = node.run_directory.glob(f"{SOCKET_PREFIX}*")
    node.kill("jobs-1")
    eventually(
        lambda: wake_up_socket not in (now := list(node.run_directory.glob(f"{SOCKET_PREFIX}*"))) and len(now) == 1,
    )
    soon(own, own.enqueue("quick"), "ran")


def test_a_ring_goes_out_after_the_commit_and_not_after_a_rollback(idle_pair: Cluster) -> None:
    node = idle_pair.nodes[0]
    with idle_pair.client.database.engine.connect() as connection:
        idle_pair.client.enqueue_in(connection, "jobs", name="quick")
        assert idle_pair.client.notifier.flush()
        received = bell(node)["rings_received"]
        connection.rollback()
        job = idle_pair.client.enqueue_in(connection, "jobs", name="quick")
        assert idle_pair.client.notifier.flush()
        assert bell(node)["rings_received"] == received
        connection.commit()
        soon(idle_pair, job, "ran")


def test_raw_sql_is_rung_for_by_hand(idle_pair: Cluster) -> None:
    with idle_pair.client.database.engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO tasks (queue, name, body) VALUES ('jobs', 'quick', '{}')"))
    [task, *_] = idle_pair.client.tasks.list()
    idle_pair.client.ring("jobs")
    eventually(
        lambda: idle_pair.client.tasks.get(task.id).status is Status.DONE,
        timeout=RING_DEADLINE,
        message=idle_pair.describe,
    )


def test_a_task_begins_at_the_moment_it_falls_due(idle_pair: Cluster) -> None:
    first = idle_pair.enqueue("quick", start_in=3600)
    second = idle_pair.enqueue("quick", start_in=1.0)
    third = idle_pair.enqueue("quick", start_at=datetime.now(UTC) + timedelta(seconds=1.5))
    for job in (second, third):
        task = idle_pair.done(job, within=RING_DEADLINE)
        assert task.worker_started_at is not None
        assert task.start_at is not None
        assert timedelta(0) <= task.worker_started_at - task.start_at < timedelta(seconds=RING_DEADLINE)
    assert idle_pair.client.tasks.get(first.id).status is Status.SCHEDULED


def test_a_retry_begins_when_it_is_due(idle_pair: Cluster) -> None:
    job = idle_pair.enqueue("fails_once")
    idle_pair.done(job, within=RING_DEADLINE)


def test_a_canceled_task_is_ended_at_once_and_a_moved_one_continues_elsewhere(idle_pair: Cluster) -> None:
    canceled = idle_pair.enqueue("gated", node="one")
    soon(idle_pair, canceled, "began")
    idle_pair.client.tasks.cancel(canceled.id)
    soon(idle_pair, canceled, "cancelled")
    moved = idle_pair.enqueue("gated", node="one")
    soon(idle_pair, moved, "began")
    idle_pair.client.tasks.move(moved.id, "two")
    soon(idle_pair, moved, "cancelled")
    eventually(lambda: len(idle_pair.notes(moved, "began")) == 2, timeout=RING_DEADLINE, message=idle_pair.describe)


def test_what_a_node_releases_is_begun_by_another_at_once(idle_pair: Cluster) -> None:
    job = idle_pair.enqueue("gated", node="one")
    soon(idle_pair, job, "began")
    idle_pair.client.tasks.move(job.id, None)
    idle_pair.wait_for(job, "began", times=2)
    claiming_node = idle_pair.claiming_node(job)
    claiming_node.kill("jobs-1")
    eventually(lambda: len(idle_pair.notes(job, "began")) == 3, timeout=RING_DEADLINE, message=idle_pair.describe)


@pytest.mark.one_database
def test_a_task_of_a_schedule_is_begun_at_once(own: Cluster) -> None:
    often = {"interval": "3s", "queue": "jobs", "task": "quick"}
    node = own.node("one", **RARE_POLLING, sections={"cluster": {"secret": SECRET}}, schedules={"often": often}).up()
    wait_for_bell(node)
    known = {task.id for task in own.client.tasks.list()}
    [task] = (
        eventually(lambda: [task for task in own.client.tasks.list() if task.id not in known], timeout=WITHIN) or []
    )
    eventually(lambda: own.client.tasks.get(task.id).status is Status.DONE, timeout=RING_DEADLINE, message=own.describe)


def test_a_resumed_queue_is_taken_from_at_once(idle_pair: Cluster) -> None:
    idle_pair.client.queues.pause("jobs")
    job = idle_pair.enqueue("quick")
    idle_pair.client.notifier.flush()
    assert idle_pair.client.tasks.get(job.id).status is Status.PENDING
    idle_pair.client.queues.resume("jobs")
    soon(idle_pair, job, "ran")


def test_a_message_reaches_the_workers_of_all_nodes_once(idle_pair: Cluster) -> None:
    listening = [idle_pair.enqueue("hears", node=name) for name in ("one", "two", "two")]
    for job in listening:
        soon(idle_pair, job, "listens")
    idle_pair.enqueue("tells_all_nodes", body={"data": "hello"})
    assert [job.result(timeout=WITHIN)["data"] for job in listening] == ["hello"] * 3


def test_a_message_by_postgresql_without_the_secret_is_refused(each_cluster: Cluster) -> None:
    database = each_cluster.client.database
    if database.name != "postgresql":
        pytest.skip("only PostgreSQL listens")
    each_cluster.client.close()
    each_cluster.client = Client(each_cluster.url, secret=SECRET)
    [node] = up(each_cluster, "one")
    wait_for_bell(node)
    listening = each_cluster.enqueue("hears")
    each_cluster.wait_for(listening, "listens")
    forged = [
        '{"type":"broadcast","action":"news","data":"forged"}',
        encode_text(Signer("quite another secret", time.time).sign(Broadcast("news", "forged"), ALL_NODES)),
    ]
    for payload in forged:
        with each_cluster.client.database.engine.begin() as connection:
            connection.execute(sa.text("SELECT pg_notify('peerd', :payload)"), {"payload": payload})
    eventually(lambda: sum(bell(node)["refused"].values()) == 2, message=lambda: str(bell(node)))
    assert bell(node)["works"], "a forged message has no effect on the state of the doorbell"
    each_cluster.enqueue("tells_all_nodes", body={"data": "hello"})
    assert listening.result(timeout=WITHIN)["data"] == "hello"


def test_with_a_bell_that_is_lost_the_poll_finds_the_task(cluster: Cluster) -> None:
    [node] = cluster.up("one", poll_every="1s", rung_poll_every="2s")
    wait_for_bell(node)
    with cluster.client.database.engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO tasks (queue, name, body) VALUES ('jobs', 'quick', '{}')"))
    [task] = cluster.client.tasks.list()
    eventually(lambda: cluster.client.tasks.get(task.id).status is Status.DONE, message=cluster.describe)


def test_on_sqlite_nothing_needs_to_be_configured(cluster: Cluster) -> None:
    cluster.environment["FIRST_PAUSE"] = "60"
    [node] = up(cluster, "one", secret=None)
    wait_for_bell(node)
    soon(cluster, cluster.enqueue("quick"), "ran")
    assert bell(node)["address"].startswith("127.0.0.1:")


def test_a_ring_with_another_secret_is_refused_and_reported(cluster: Cluster) -> None:
    [node] = up_with_working_doorbell(cluster, "one")
    with Client(cluster.url, secret="quite another secret") as stranger:
        job = stranger.enqueue("jobs", name="quick")
        assert stranger.notifier.flush()
    found = eventually(lambda: (now := bell(node))["refused"] and now, timeout=WITHIN)
    assert found
    assert found["refused"] == {"it was made with another secret": 1}
    assert found["last_refused"] == "it was made with another secret, from 127.0.0.1"
    assert "a ring was refused: it was made with another secret" in node.log_text()
    eventually(lambda: cluster.client.tasks.get(job.id).status is Status.DONE, timeout=WITHIN)  # the poll has found it


def test_without_a_secret_the_nodes_of_a_server_poll_and_report_the_reason(each_cluster: Cluster) -> None:
    if each_cluster.client.database.name != "mysql":
        pytest.skip("SQLite has its own secret, PostgreSQL needs none")
    [node] = each_cluster.up("one")
    found = bell(node)
    assert not found["works"]
    assert "there is no secret" in found["reason"]
    each_cluster.done(each_cluster.enqueue("quick"))


@pytest.mark.one_database
def test_a_replaced_agent_receives_again(own: Cluster) -> None:
    [node] = up_with_working_doorbell(own, "one")
    address = bell(node)["address"]
    pid = node.kill("agent")
    eventually(node.replaced("agent", pid))
    wait_for_bell(node)
    assert bell(node)["address"] == address
    eventually(lambda: node.slot("jobs-1")["state"] == "RUNNING", timeout=WITHIN)
    job = own.enqueue("quick")
    eventually(lambda: own.notes(job, "ran"), timeout=RING_DEADLINE, message=own.describe)


def test_a_listening_connection_that_is_lost_is_opened_again(each_cluster: Cluster) -> None:
    database = each_cluster.client.database
    if database.name != "postgresql":
        pytest.skip("only PostgreSQL listens")
    each_cluster.environment["FIRST_PAUSE"] = "60"
    [node] = up_with_working_doorbell(each_cluster, "one")
    ours = "datname = current_database() AND query = 'LISTEN peerd'"
    kill = sa.text(f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {ours}")
    with database.engine.connect() as connection:
        assert connection.execute(kill).scalar() == 1
    eventually(lambda: not bell(node)["works"] or "doorbell is not known to work" in node.log_text(), timeout=WITHIN)
    wait_for_bell(node)
    soon(each_cluster, each_cluster.enqueue("quick"), "ran")
    with database.engine.begin() as connection:  # and what a person rings
        connection.execute(sa.text("INSERT INTO tasks (queue, name, body) VALUES ('jobs', 'quick', '{}')"))
        connection.execute(sa.text("NOTIFY peerd, 'jobs'"))
    last = each_cluster.client.tasks.list()[0]
    eventually(lambda: each_cluster.client.tasks.get(last.id).status is Status.DONE, timeout=RING_DEADLINE)
