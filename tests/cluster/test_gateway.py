"""The queue server on real nodes: no job is lost and none is held twice, whatever is killed, stopped or reloaded."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

import pytest
import sqlalchemy as sa

from peerd.gateway.service import RUNG_POLL_EVERY
from peerd.store.schema.tables import tasks
from peerd.supervision import control_client
from peerd.testing import eventually
from tests.cluster.cluster import MAX_UPDATE, WITHIN, Cluster, ClusterNode
from tests.cluster.conftest import MakeCluster
from tests.gateway.beanstalk_connection import BeanstalkConnection, reserved

TUBES: Final = "gateway.tubes"
SECRET: Final = "a secret that all nodes share"
ROWS: Final = {"worker": "jobs:Tubes", "update": "500ms", "poll_every": "200ms"}
CONNECTIONS: Final = 30
JOBS_OF_EACH: Final = 10
HOUR: Final = 3600
AT_ONCE: Final = 3.0
"""Seconds from the kill of a gateway process until others have reserved its jobs, on a busy machine; on an idle one it
is less than one."""


def gateway_node(cluster: Cluster, name: str, **settings: Any) -> ClusterNode:
    """A node with gateway processes: settings of its section, or tables node=, manager=, workers=."""
    tables = {table: settings.pop(table) for table in ("node", "manager", "workers") if table in settings}
    sections = {TUBES: {"bind": "127.0.0.1:0", **settings}, "cluster": {"secret": SECRET}}
    sections |= {f"workers.{worker}.options": cluster.options for worker in tables.get("workers", {})}
    return cluster.node(name, **{"workers": {}, **tables}, sections=sections)


def start_all(*nodes: ClusterNode) -> None:
    """Start nodes, and wait until their doorbells are known to work."""
    for node in nodes:
        node.start()
    for node in nodes:
        node.wait_until_running()
        node.wait_for_doorbell()


def connect(node: ClusterNode, tube: bytes = b"default") -> BeanstalkConnection:
    """A client that uses and watches a tube."""
    connection = BeanstalkConnection(("127.0.0.1", node.port()))
    if tube != b"default":
        connection.use(tube)
        connection.watch_only(tube)
    return connection


def connect_many(node: ClusterNode, number: int, clients: ExitStack) -> list[BeanstalkConnection]:
    return [clients.enter_context(connect(node)) for _ in range(number)]


def put_many(connection: BeanstalkConnection, number: int) -> list[int]:
    """Put so many jobs, pipelined; their ids."""
    answers = connection.ask_all(b"put 0 0 %d 1\r\nx\r\n" % HOUR * number, number)
    return [int(answer.removeprefix(b"INSERTED ")) for answer in answers]


def reserve_in_each(connections: Sequence[BeanstalkConnection], jobs: int) -> None:
    """Send so many reserves by each connection, and do not wait."""
    for connection in connections:
        connection.send(b"reserve-with-timeout 60\r\n" * jobs)


def receive_jobs(connections: Sequence[BeanstalkConnection], jobs: int) -> dict[int, BeanstalkConnection]:
    """The jobs that each connection has reserved; none may be held twice."""
    holders: dict[int, BeanstalkConnection] = {}
    for connection in connections:
        for _ in range(jobs):
            answer = connection.receive(WITHIN)
            assert answer.startswith(b"RESERVED "), answer
            job = int(answer.split()[1])
            assert job not in holders
            holders[job] = connection
    return holders


def hold_jobs(connections: Sequence[BeanstalkConnection]) -> list[int]:
    """Put jobs by each connection, and reserve as many; their ids."""
    ids = [job for connection in connections for job in put_many(connection, JOBS_OF_EACH)]
    reserve_in_each(connections, JOBS_OF_EACH)
    assert sorted(receive_jobs(connections, JOBS_OF_EACH)) == sorted(ids)
    return ids


def assert_others_have(
    cluster: Cluster, waiting: Sequence[BeanstalkConnection], ids: Sequence[int], *, within: float
) -> None:
    """What a holder has lost is reserved by the waiting in time, each job once, and nothing is counted."""
    began = time.monotonic()
    holders = receive_jobs(waiting, JOBS_OF_EACH)
    assert time.monotonic() - began < within
    assert sorted(holders) == sorted(ids)
    job = waiting[0].job(ids[0])
    assert (job["timeouts"], job["releases"], job["reserves"]) == ("0", "0", "2")
    assert counted(cluster) == (0, 0, 0, 0)
    assert [one for job in ids[:20] for one in cluster.client.tasks.attempts(job) if one.number] == []
    delete_all(holders)


def counted(cluster: Cluster) -> tuple[int, ...]:
    """What all jobs together have counted: attempts, crashes, timeouts, releases."""
    names = ("attempts", "crashes", "timeouts", "releases")
    sums = sa.select(*[sa.func.coalesce(sa.func.sum(tasks.c[name]), 0) for name in names])
    return tuple(map(int, cluster.client.database.read(lambda connection: connection.execute(sums).one())))


def delete_all(holders: dict[int, BeanstalkConnection]) -> None:
    """Each client deletes what it holds."""
    for job, connection in holders.items():
        assert connection.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"


def figure(node: ClusterNode, name: str) -> int:
    """A figure of ``stats``, as a connection of its own sees it."""
    with connect(node) as client:
        return int(client.statistics()[name])


@pytest.fixture(scope="module")
def shared(module_cluster: MakeCluster) -> Cluster:
    cluster = module_cluster("mysql")
    node = {"grace": "4s"}
    one = gateway_node(cluster, "one", node=node, workers={"rows": ROWS})
    start_all(one, gateway_node(cluster, "two", node=node))
    return cluster


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    """The two nodes, and no job."""
    shared.client.database.run(lambda connection: connection.execute(sa.delete(tasks)).rowcount)
    return shared.reset()


def test_a_killed_gateway_process_loses_no_job_and_others_get_its_jobs_at_once(cluster: Cluster) -> None:
    one, two = cluster.nodes
    with ExitStack() as clients:
        dying = connect_many(one, CONNECTIONS, clients)
        ids = hold_jobs(dying)
        waiting = connect_many(two, CONNECTIONS, clients)
        reserve_in_each(waiting, JOBS_OF_EACH)
        eventually(lambda: figure(two, "current-waiting") == CONNECTIONS, timeout=WITHIN)
        one.kill("tubes-1")
        assert_others_have(cluster, waiting, ids, within=AT_ONCE)
        with pytest.raises(ConnectionError):
            dying[0].ask(b"delete %d\r\n" % ids[0])
        eventually(lambda: one.slot("tubes-1")["state"] == "RUNNING", timeout=WITHIN, message=one.log_text)
        assert figure(two, "current-jobs-ready") == figure(two, "current-jobs-reserved") == 0


def test_a_reload_drops_no_connection_and_no_reservation(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    old = node.pid("tubes-1")
    with ExitStack() as clients:
        connections = connect_many(node, 10, clients)
        ids = [connection.put(ttr=HOUR) for connection in connections]
        reserve_in_each(connections, 1)
        holders = receive_jobs(connections, 1)
        waiting = clients.enter_context(connect(node, b"later"))
        waiting.send(b"reserve\r\n")
        control_client.send_command(node.run_directory, {"command": "reload", "kinds": ["tubes"]})
        worked = 0
        while not node.replaced("tubes-1", old)():
            for connection in connections:
                job = connection.put()
                assert connection.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
                worked += 1
        assert worked
        new = clients.enter_context(connect(node, b"later"))
        assert int(new.statistics()["pid"]) == node.pid("tubes-1") != old
        assert {int(connection.statistics()["pid"]) for connection in connections} == {old}
        job = new.put()
        assert waiting.receive(WITHIN) == reserved(job), "the old process hears the rings of the new one"
        assert sorted(holders) == sorted(ids)
        delete_all(holders)
        assert counted(cluster) == (0, 0, 0, 0)
        for connection in (*connections, waiting):
            connection.close()
        eventually(lambda: old not in cluster.processes(), timeout=WITHIN, message=node.log_text)
        assert new.reserve() == job, "what the old process's client held is ready again"


def test_a_put_on_one_node_wakes_a_reserve_that_waits_on_another(cluster: Cluster) -> None:
    one, two = cluster.nodes
    eventually(lambda: two.doorbell()["works"], timeout=WITHIN, message="else it polls every second")
    took = []
    with connect(one, b"woken") as producer, connect(two, b"woken") as worker:
        for _ in range(7):
            worker.send(b"reserve-with-timeout 30\r\n")
            eventually(lambda: figure(two, "current-waiting") == 1, timeout=WITHIN)
            began = time.monotonic()
            job = producer.put()
            assert worker.receive(WITHIN) == reserved(job)
            took.append(time.monotonic() - began)
            assert worker.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
    assert sum(took) < RUNG_POLL_EVERY, "which seven polls would need several times"


def test_a_job_of_a_client_is_handled_in_python_and_a_task_of_python_is_reserved_by_a_client(
    cluster: Cluster,
) -> None:
    node = cluster.nodes[0]
    with connect(node, b"handled") as client:
        job = client.put(b"\xffbinary\r\n")
        text = client.put("grüße".encode())
        found = eventually(lambda: cluster.notes(event="handled")[1:], timeout=WITHIN, message=cluster.describe)
        assert found
        handled = {one["task"]: bytes.fromhex(one["body"]) for one in cluster.notes(event="handled")}
        assert handled == {job: b"\xffbinary\r\n", text: "grüße".encode()}
        assert client.ask(b"stats-job %d\r\n" % job) == b"NOT_FOUND\r\n", "it has ended"
    with connect(node, b"for-clients") as client:
        client.send(b"reserve\r\n")
        enqueued = cluster.client.enqueue("for-clients", name="send", body={"to": "you"})
        assert client.receive(WITHIN) == reserved(enqueued.id, b'{"to":"you"}')
        assert cluster.client.tasks.get(enqueued.id).status == "working"
        assert client.ask(b"delete %d\r\n" % enqueued.id) == b"DELETED\r\n"


def test_the_jobs_of_a_killed_node_are_ready_when_its_lease_ends(cluster: Cluster) -> None:
    one, two = cluster.nodes
    with ExitStack() as clients:
        ids = hold_jobs(connect_many(one, CONNECTIONS, clients))
        waiting = connect_many(two, CONNECTIONS, clients)
        reserve_in_each(waiting, JOBS_OF_EACH)
        one.kill_all()
        assert_others_have(cluster, waiting, ids, within=3 * MAX_UPDATE)


def test_a_connection_that_holds_a_job_may_finish_it_when_its_node_stops(shared: Cluster) -> None:
    cluster, node = shared, shared.nodes[1]  # the first one was killed
    cluster.client.database.run(lambda connection: connection.execute(sa.delete(tasks)).rowcount)
    with connect(node) as finishing, connect(node) as holding, connect(node) as idle, connect(node, b"w") as waiting:
        ids = put_many(finishing, 2)
        assert finishing.reserve() == ids[0]
        assert holding.reserve() == ids[1]
        waiting.send(b"reserve\r\n")
        node.signal_master(signal.SIGTERM)
        assert idle.ends() == b""
        assert waiting.ends() == b""
        assert finishing.ask(b"delete %d\r\n" % ids[0]) == b"DELETED\r\n"
        assert finishing.ends() == b""
        assert holding.ends(WITHIN) == b"", "it is closed at the end of the grace"
        assert node.master is not None
        assert node.master.wait(WITHIN) == 0
    [task] = cluster.client.tasks.list()
    assert (task.id, task.status, task.attempts) == (ids[1], "pending", 0)
    assert counted(cluster) == (0, 0, 0, 0)
