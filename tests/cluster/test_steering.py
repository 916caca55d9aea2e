"""Nodes carry out requests of others: their state, a reload, scaling; each at most once, with a ring or without."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from peerd import Client, Job
from peerd.domain.errors import NodeRequestFailed, NodeUnreachable
from peerd.domain.lifecycle import Status
from peerd.domain.node_request import NodeRequestStatus, ScaleArguments, StateArguments
from peerd.domain.ring import NodeRequested
from peerd.domain.task_stack import CallFrame, TaskStack
from peerd.store import node_requests as stored_requests
from peerd.store.node_requests import INTERRUPTED, NodeRequest, get_request, insert_request
from peerd.store.schema.tables import node_requests
from peerd.testing import eventually, eventually_async
from peerd.web import create_app
from tests.cluster.cluster import WITHIN, WORKER, Cluster, ClusterNode
from tests.cluster.conftest import MakeCluster
from tests.support.served_api import everyone

SECRET = "a secret that all nodes share"
FRAGILE = """
from pathlib import Path
from jobs import jobs
if (Path(__file__).parent / "broken").exists():
    raise RuntimeError("broken")
"""


@pytest.fixture(scope="module")
def shared(module_cluster: MakeCluster) -> Cluster:
    """Nodes `one` and `two`; of the kind `fragile`, no further process can start."""
    cluster = module_cluster("sqlite")
    cluster.copy("steered.py")
    (cluster.folder / "fragile.py").write_text(FRAGILE)
    workers = {
        "jobs": WORKER,
        "fragile": {**WORKER, "tasks": "fragile:jobs"},
        "steered": {**WORKER, "tasks": "steered:steered", "count": 20},
    }
    cluster.client.close()
    cluster.client = Client(cluster.url, secret=SECRET)
    sections = {"cluster": {"secret": SECRET}}
    for node in cluster.up("one", "two", workers=workers, manager={"inactive_after": "15s"}, sections=sections):
        node.wait_for_doorbell()
    (cluster.folder / "broken").touch()
    return cluster


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    """The two, each with one process of a kind, and no request."""
    for node in shared.nodes:
        for kind in ("fragile", "jobs"):
            node.scale(kind, 1)
    shared.client.database.run(lambda connection: connection.execute(sa.delete(node_requests)).rowcount)
    return shared.reset()


@pytest.fixture
def one(cluster: Cluster) -> ClusterNode:
    return cluster.nodes[0]


@pytest.fixture
def two(cluster: Cluster) -> ClusterNode:
    return cluster.nodes[1]


def requests(cluster: Cluster) -> list[NodeRequest]:
    database = cluster.client.database
    ids = database.read(lambda connection: connection.execute(sa.select(node_requests.c.id)).scalars().all())
    return [database.read(get_request, request_id) for request_id in sorted(ids)]


def insert(cluster: Cluster, node: str, command: Any) -> int:
    """A request as `Client.nodes` inserts it, without a ring."""
    return cluster.client.database.run(insert_request, node, command, requested_by="a test", within=60.0)


def write(cluster: Cluster, request_id: int, **values: object) -> None:
    """Change the row of a request, past all checks."""
    row = sa.update(node_requests).where(node_requests.c.id == request_id).values(**values)
    cluster.client.database.run(lambda connection: connection.execute(row).rowcount)


def until_ended(cluster: Cluster, request_id: int) -> NodeRequest:
    def ended() -> NodeRequest | None:
        request = cluster.client.nodes.get_request(request_id)
        return None if request.is_open else request

    found = eventually(ended, timeout=WITHIN, message=cluster.describe)
    assert found is not None
    return found


def test_the_state_of_another_node_and_reload_and_scale_it(cluster: Cluster, two: ClusterNode) -> None:
    received, generation = two.doorbell()["rings_received"], two.slot("jobs-1")["generation"]
    with Client(cluster.url, secret=SECRET) as client:
        state = client.nodes.state("two")
        assert (state.node, state.state) == ("two", "running")
        [slot] = [slot for slot in state.slots if slot.kind == "jobs"]
        assert (slot.state, slot.generation, slot.pid) == ("RUNNING", generation, two.pid("jobs-1"))

        scaled = asyncio.run(client.aio.nodes.scale("two", "jobs", 2))
        assert (scaled.before, scaled.processes) == (1, 2)
        before = two.slots("jobs")
        assert [slot["state"] for slot in before] == ["RUNNING", "RUNNING"]

        assert client.nodes.reload("two", ["jobs"]).kinds == {"jobs": "done"}
        assert not {slot["pid"] for slot in before} & {slot["pid"] for slot in two.slots("jobs")}
    eventually(lambda: two.doorbell()["rings_received"] >= received + 3, timeout=WITHIN)
    assert {request.status for request in requests(cluster)} == {NodeRequestStatus.DONE}
    requester = f"{pwd.getpwuid(os.getuid()).pw_name} at {socket.gethostname()}"
    assert requests(cluster)[0].requested_by == requester


@pytest.mark.slow
def test_without_a_ring_the_node_finds_the_request_and_wrong_ones_are_refused(
    cluster: Cluster,
) -> None:
    """The node polls at least every ten seconds."""
    ids = [insert(cluster, "one", StateArguments()) for _ in range(4)]
    for request_id, arguments in zip(ids[1:], ('{"type":"halt"}', "no JSON", "[" * 10_000), strict=True):
        write(cluster, request_id, arguments=arguments)
    ids += [insert(cluster, "one", ScaleArguments(kind, 3)) for kind in ("nothing", "agent")]
    first, *wrong_ones = [until_ended(cluster, request_id) for request_id in ids]
    assert first.status is NodeRequestStatus.DONE
    assert {request.status for request in wrong_ones} == {NodeRequestStatus.FAILED}
    assert all("no request that a node can carry out" in (one.error or "") for one in wrong_ones[:3])
    assert all("to scale; only jobs" in (one.error or "") for one in wrong_ones[3:])


@pytest.mark.slow
def test_a_request_that_a_silent_agent_has_not_taken_expires_and_is_never_carried_out(
    cluster: Cluster, one: ClusterNode
) -> None:
    agent = one.pid("agent")
    cluster.freeze([agent])
    try:
        with pytest.raises(NodeUnreachable, match="its agent has not answered in time"):
            cluster.client.nodes.scale("one", "jobs", 3, timeout=0.5)
    finally:
        cluster.thaw([agent])
    assert cluster.client.nodes.state("one").state == "running"  # later than the other request
    assert [request.status for request in requests(cluster)] == [NodeRequestStatus.EXPIRED, NodeRequestStatus.DONE]
    assert len(one.slots("jobs")) == 1


def test_a_ring_with_another_secret_is_refused_and_reported(cluster: Cluster, one: ClusterNode) -> None:
    """Rings are datagrams here."""
    before = sum(one.doorbell()["refused"].values())
    with Client(cluster.url, secret="guessed") as stranger:
        stranger.notifier.ring(NodeRequested("one"))
        assert stranger.notifier.flush()
    eventually(lambda: sum(one.doorbell()["refused"].values()) == before + 1, timeout=WITHIN)
    found = one.doorbell()
    assert found["last_refused"] == "it was made with another secret, from 127.0.0.1"
    assert (found["works"], requests(cluster)) == (True, []), "it has no effect"
    assert "a ring was refused: it was made with another secret" in one.log_text()


@pytest.mark.slow
def test_the_command_line_of_one_node_steers_another(cluster: Cluster, one: ClusterNode, two: ClusterNode) -> None:
    scaled = one.peerd("scale", "jobs", "2", "--node", "two", "--json")
    assert json.loads(scaled.stdout) == {"node": "two", "scaled": {"kind": "jobs", "before": 1, "processes": 2}}
    reloaded = one.peerd("reload", "jobs", "--node", "two")
    assert reloaded.stdout.splitlines() == ["jobs  done", "two is reloaded"]
    assert (len(two.slots("jobs")), len(one.slots("jobs"))) == (2, 1)
    assert re.search(r"jobs-2 +running +\d+ +\d+ ", one.peerd("nodes", "show", "two").stdout)
    refused = one.peerd("scale", "nothing", "2", "--node", "two")
    assert (refused.returncode, "there is no kind 'nothing' to scale" in refused.stderr) == (1, True)
    job = cluster.enqueue("gated")
    cluster.wait_for(job, "began")
    stack = one.peerd("tasks", "stack", str(job.id)).stdout
    assert "in gated" in stack
    assert re.search(r"process \d+: \d+% cpu, .*B of memory, \d+ threads", stack)


async def test_the_api_steers_nodes(cluster: Cluster, one: ClusterNode) -> None:
    transport = httpx.ASGITransport(create_app(cluster.client, authenticate=everyone))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/api/v1", timeout=WITHIN) as http:
        asked = await http.post("/nodes/one/scale", json={"kind": "jobs", "count": 2})
        assert (asked.status_code, asked.json()["command"]) == (202, "scale")

        async def ended() -> dict[str, Any] | None:
            found: dict[str, Any] = (await http.get(f"/nodes/requests/{asked.json()['id']}")).json()
            return found if found["finished_at"] else None

        found = await eventually_async(ended, timeout=WITHIN)
        assert found is not None
        assert found["result"] == {"kind": "jobs", "before": 1, "processes": 2}
        reload = await http.post("/nodes/one/reload", json={"kinds": ["jobs"]})
        assert reload.json()["arguments"]["kinds"] == ["jobs"]
        shown = (await http.get("/nodes/one")).json()
        assert (shown["live"]["pid"], shown["problem"]) == (one.master and one.master.pid, None)
        assert {slot["kind"] for slot in shown["live"]["slots"]} == {"agent", "manager", "jobs", "fragile", "steered"}
        job = cluster.enqueue("gated", node="one")
        await asyncio.to_thread(cluster.wait_for, job, "began")
        stack = await http.get(f"/tasks/{job.id}/stack")
        assert (stack.status_code, stack.json()["node"]) == (200, "one")
        assert stack.json()["calls"][0]["frames"][0]["function"] == "gated"


# ---------------------------------------------------------------- stacks of running tasks


def start(cluster: Cluster, name: str) -> Job:
    job = cluster.enqueue(name, "steered", node="one")
    cluster.wait_until(job, Status.WORKING)
    return job


def functions(frames: list[CallFrame]) -> list[str]:
    return [frame.function.rpartition(".")[2] for frame in frames]


def read_until(cluster: Cluster, job: Job, function: str) -> TaskStack:
    """The stack once the handler has come to a function."""

    def arrived() -> TaskStack | None:
        try:
            stack = cluster.client.tasks.stack(job.id)
        except NodeRequestFailed:  # claimed, and not begun; or its process has just been started
            return None
        return stack if any(function in functions(call.frames) for call in stack.calls) else None

    found = eventually(arrived, timeout=WITHIN, message=cluster.describe)
    assert found is not None
    return found


def test_each_kind_of_handler_shows_where_its_code_is(cluster: Cluster) -> None:
    worker = cluster.nodes[0].pid("steered-1")

    stack = read_until(cluster, start(cluster, "awaits_deeply"), "innermost")
    assert (stack.node, stack.slot) == ("one", "steered-1")
    assert functions(stack.calls[0].frames) == [
        "awaits_deeply", *["deeper"] * 6, "numbers", "innermost", "sleep",
    ]  # fmt: skip
    innermost = stack.calls[0].frames[-2]
    assert (innermost.file, innermost.source) == (str(cluster.folder / "steered.py"), "await asyncio.sleep(0.05)")
    assert "hunter2" not in str(stack)
    assert stack.process is not None
    assert stack.process.pid == worker
    assert stack.process.memory > 1_000_000
    assert stack.process.threads > 1
    assert stack.since == cluster.client.tasks.get(stack.task_id).worker_started_at

    stack = read_until(cluster, start(cluster, "in_a_process"), "compute")
    assert (stack.calls[0].name, functions(stack.calls[0].frames)[:2]) == ("process", ["in_a_process", "compute"])
    assert stack.calls[0].frames[1].source.startswith(("sum(", "while not"))
    assert stack.process is not None
    assert stack.process.pid != worker
    assert stack.process.cpu > 0


@pytest.mark.slow
def test_a_blocked_event_loop_shows_what_blocks_it(cluster: Cluster) -> None:
    beside = start(cluster, "waits_beside")
    read_until(cluster, beside, "innermost")
    blocking = start(cluster, "blocks_the_loop")
    stack = read_until(cluster, blocking, "busy_loop")
    assert functions(stack.calls[-1].frames)[:2] == ["blocks_the_loop", "busy_loop"]
    stack = read_until(cluster, beside, "innermost")
    assert [(call.name, functions(call.frames)[:2]) for call in stack.calls] == [
        ("coroutine", ["waits_beside", "innermost"]),
        ("event loop", ["blocks_the_loop", "busy_loop"]),
    ]


# ---------------------------------------------------------------- nodes that end


@pytest.mark.slow
def test_what_an_agent_had_taken_when_it_was_killed_is_failed_and_not_repeated(
    cluster: Cluster, two: ClusterNode
) -> None:
    begun = cluster.client.nodes.request_scale("two", "fragile", 2)
    eventually(lambda: cluster.client.nodes.get_request(begun.id).result, timeout=WITHIN, message=cluster.describe)
    scaled = two.log_text().count("fragile is scaled from 1 to 2")
    taken = insert(cluster, "two", ScaleArguments("jobs", 3))
    write(cluster, taken, status="running")
    killed = two.kill("agent")
    eventually(two.replaced("agent", killed), timeout=WITHIN)
    assert until_ended(cluster, taken).error == INTERRUPTED
    assert cluster.client.nodes.get_request(begun.id).status is NodeRequestStatus.RUNNING, "it waits on"
    assert len(two.slots("jobs")) == 1
    assert two.log_text().count("fragile is scaled from 1 to 2") == scaled


@pytest.mark.slow
def test_errors_name_the_cause_and_a_node_that_dies_in_the_middle_is_reported(
    cluster: Cluster, one: ClusterNode, two: ClusterNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = cluster.client.nodes
    with pytest.raises(NodeRequestFailed, match="there is no nothing; only"):
        nodes.reload("one", ["nothing"])
    with pytest.raises(NodeRequestFailed, match="not scaled within 1 s, and going on: fragile-1 RUNNING, fragile-2"):
        nodes.scale("one", "fragile", 2, timeout=1.0)
    monkeypatch.setattr(stored_requests, "GONE_AFTER", 3.0)
    before = len(requests(cluster))
    with ThreadPoolExecutor() as pool:
        running = pool.submit(nodes.scale, "two", "fragile", 2, timeout="10m")
        eventually(lambda: len(two.slots("fragile")) == 2, timeout=WITHIN)
        cluster.freeze([two.pid("agent")])
        waiting = pool.submit(nodes.state, "two", timeout="10m")
        eventually(lambda: len(requests(cluster)) == before + 2, timeout=WITHIN)
        two.kill_all()
        with pytest.raises(NodeRequestFailed, match="it ended, or was restarted, while it carried this out"):
            running.result(WITHIN)
        with pytest.raises(NodeUnreachable, match="it was stopped or restarted, or its heartbeats have ended"):
            waiting.result(WITHIN)
    one.stop()
    with pytest.raises(NodeUnreachable, match="it was stopped; start it"):
        nodes.state("one")
