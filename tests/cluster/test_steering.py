"""Nodes carry out requests of others: their state, a reload, scaling; each at most once, with a ring or without."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from peerd import Client
from peerd.domain.errors import NodeNotFound, NodeRequestFailed, NodeUnreachable
from peerd.domain.node_request import NodeRequestStatus, ScaleArguments, StateArguments
from peerd.domain.ring import NodeRequested
from peerd.operate.nodes import LiveNode
from peerd.store.nodes import requests as stored_requests
from peerd.store.nodes.requests import INTERRUPTED, NodeRequest, get_request, insert_request
from peerd.store.schema.tables import node_requests
from peerd.supervision.control import control_client
from peerd.testing import eventually, eventually_async
from peerd.web import create_app
from tests.cluster.cluster import WITHIN, WORKER, Cluster, ClusterNode

SECRET = "a secret that all nodes share"
SHARED_SECRET: dict[str, Any] = {"sections": {"cluster": {"secret": SECRET}}}
BREAKABLE: dict[str, Any] = {"jobs": WORKER, "fragile": {**WORKER, "tasks": "fragile:jobs"}}
FRAGILE = """
from pathlib import Path
from jobs import jobs
if (Path(__file__).parent / "broken").exists():
    raise RuntimeError("broken")
"""


def up_with_fragile_worker(cluster: Cluster, name: str) -> ClusterNode:
    """A node of which no further process of the kind `fragile` can start."""
    (cluster.folder / "fragile.py").write_text(FRAGILE)
    [node] = cluster.up(name, workers=BREAKABLE)
    (cluster.folder / "broken").touch()
    return node


def slots(node: ClusterNode, kind: str = "jobs") -> list[dict[str, Any]]:
    return [slot for slot in control_client.status(node.run_directory)["slots"] if slot["kind"] == kind]


def requests(cluster: Cluster) -> list[NodeRequest]:
    database = cluster.client.database
    ids = database.read(lambda connection: connection.execute(sa.select(node_requests.c.id)).scalars().all())
    return [database.read(get_request, request_id) for request_id in sorted(ids)]


def insert(cluster: Cluster, node: str, command: Any, within: float = 60.0) -> int:
    """A request as `Client.nodes` inserts it, without a ring."""
    return cluster.client.database.run(insert_request, node, command, requested_by="a test", within=within)


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


def rings_received(node: ClusterNode) -> int:
    return int(control_client.call_agent(node.run_directory, "peerd.doorbell")["rings_received"])


@pytest.mark.one_database
def test_the_state_of_another_node_and_reload_and_scale_it(each_cluster: Cluster) -> None:
    _, two = each_cluster.up("one", "two", **SHARED_SECRET)
    eventually(lambda: control_client.call_agent(two.run_directory, "peerd.doorbell")["works"], timeout=WITHIN)
    with Client(each_cluster.url, secret=SECRET) as client:
        state = client.nodes.state("two")
        assert (state.node, state.state) == ("two", "running")
        [slot] = [slot for slot in state.slots if slot.kind == "jobs"]
        assert (slot.state, slot.generation, slot.pid) == ("RUNNING", 1, two.pid("jobs-1"))

        scaled = asyncio.run(client.aio.nodes.scale("two", "jobs", 2))
        assert (scaled.before, scaled.processes) == (1, 2)
        assert [slot["state"] for slot in slots(two)] == ["RUNNING", "RUNNING"]

        assert client.nodes.reload("two", ["jobs"]).kinds == {"jobs": "done"}
        assert [slot["generation"] for slot in slots(two)] == [2, 2]
    eventually(lambda: rings_received(two) >= 3, timeout=WITHIN)
    assert {request.status for request in requests(each_cluster)} == {NodeRequestStatus.DONE}
    requester = f"{pwd.getpwuid(os.getuid()).pw_name} at {socket.gethostname()}"
    assert requests(each_cluster)[0].requested_by == requester


def test_without_a_ring_the_node_finds_the_request_and_wrong_ones_are_refused(cluster: Cluster) -> None:
    """The node polls at least every ten seconds."""
    [node] = cluster.up("one")
    hostile = ['{"type":"halt"}', "no JSON", '{"type":"scale","kind":"jobs","count":100000}', "[" * 10_000]
    ids = [insert(cluster, "one", StateArguments())]
    for arguments in hostile:
        request_id = insert(cluster, "one", StateArguments())
        write(cluster, request_id, arguments=arguments)
        ids.append(request_id)
    ids.append(insert(cluster, "one", ScaleArguments("nothing", 1)))
    ids.append(insert(cluster, "one", ScaleArguments("agent", 3)))
    first, *wrong_ones = [until_ended(cluster, request_id) for request_id in ids]
    assert first.status is NodeRequestStatus.DONE
    assert {request.status for request in wrong_ones} == {NodeRequestStatus.FAILED}
    assert all("no request that a node can carry out" in (one.error or "") for one in wrong_ones[: len(hostile)])
    assert all("to scale; only jobs" in (one.error or "") for one in wrong_ones[len(hostile) :])
    assert len(slots(node)) == 1


def test_errors_name_the_cause(cluster: Cluster) -> None:
    node = up_with_fragile_worker(cluster, "one")
    nodes = cluster.client.nodes
    with pytest.raises(NodeNotFound):
        nodes.state("unknown")
    with pytest.raises(NodeRequestFailed, match="there is no kind 'nothing' to scale; only jobs, fragile"):
        nodes.scale("one", "nothing", 1)
    with pytest.raises(NodeRequestFailed, match="there is no nothing; only"):
        nodes.reload("one", ["nothing"])
    with pytest.raises(NodeRequestFailed, match="not scaled within 1 s, and going on: fragile-1 RUNNING, fragile-2"):
        nodes.scale("one", "fragile", 2, timeout=1.0)
    node.stop()
    with pytest.raises(NodeUnreachable, match="it was stopped; start it"):
        nodes.state("one")


def test_a_reload_of_everything_goes_on_in_the_agent_that_replaces_the_one_which_took_it(cluster: Cluster) -> None:
    [node] = cluster.up("one")
    agent = node.pid("agent")
    kinds = cluster.client.nodes.reload("one").kinds
    assert kinds == {"jobs": "done", "manager": "done", "agent": "done"}
    assert node.pid("agent") != agent
    assert [slot["generation"] for slot in slots(node)] == [2]
    assert [reload["number"] for reload in control_client.status(node.run_directory)["reloads"]] == [1]


def test_what_an_agent_had_taken_when_it_was_killed_is_failed_and_not_repeated(cluster: Cluster) -> None:
    node = up_with_fragile_worker(cluster, "one")
    begun = cluster.client.nodes.request_scale("one", "fragile", 2)
    eventually(lambda: cluster.client.nodes.get_request(begun.id).result, timeout=WITHIN, message=cluster.describe)
    taken = insert(cluster, "one", ScaleArguments("jobs", 3))
    write(cluster, taken, status="running")
    killed = node.kill("agent")
    eventually(node.replaced("agent", killed), timeout=WITHIN)
    assert until_ended(cluster, taken).error == INTERRUPTED
    assert cluster.client.nodes.get_request(begun.id).status is NodeRequestStatus.RUNNING, "it waits on"
    assert len(slots(node)) == 1
    assert node.log_text().count("fragile is scaled from") == 1


def test_a_request_that_a_silent_agent_has_not_taken_expires_and_is_never_carried_out(cluster: Cluster) -> None:
    [node] = cluster.up("one", manager={"inactive_after": "60s"})
    agent = node.pid("agent")
    cluster.freeze([agent])
    try:
        with pytest.raises(NodeUnreachable, match="its agent has not answered in time"):
            cluster.client.nodes.scale("one", "jobs", 3, timeout=0.5)
    finally:
        cluster.thaw([agent])
    assert cluster.client.nodes.state("one").state == "running"  # later than the other request
    assert [request.status for request in requests(cluster)] == [NodeRequestStatus.EXPIRED, NodeRequestStatus.DONE]
    assert len(slots(node)) == 1


def test_a_node_that_dies_in_the_middle_is_reported(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_requests, "GONE_AFTER", 3.0)
    cluster.up("one")
    two = up_with_fragile_worker(cluster, "two")
    errors: list[Exception] = []

    def in_thread(call: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            try:
                call()
            except Exception as error:  # noqa: BLE001 - the test looks at it
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    running = in_thread(lambda: cluster.client.nodes.scale("two", "fragile", 2, timeout="10m"))
    eventually(lambda: len(slots(two, "fragile")) == 2, timeout=WITHIN)
    cluster.freeze([two.pid("agent")])
    waiting = in_thread(lambda: cluster.client.nodes.state("two", timeout="10m"))
    eventually(lambda: len(requests(cluster)) == 2, timeout=WITHIN)
    two.kill_all()
    for thread in (running, waiting):
        thread.join(WITHIN)
        assert not thread.is_alive()
    by_kind = {type(error): str(error) for error in errors}
    assert "it was stopped or restarted, or its heartbeats have ended" in by_kind[NodeUnreachable]
    assert "it ended, or was restarted, while it carried this out" in by_kind[NodeRequestFailed]


def test_forged_rings_do_nothing(cluster: Cluster) -> None:
    [node] = cluster.up("one", **SHARED_SECRET)
    eventually(lambda: control_client.call_agent(node.run_directory, "peerd.doorbell")["works"], timeout=WITHIN)
    before = slots(node)
    with Client(cluster.url, secret="guessed") as forger, Client(cluster.url, secret=SECRET) as member:
        for _ in range(20):
            forger.notifier.ring(NodeRequested("one"))
            member.notifier.ring(NodeRequested("one"), NodeRequested("two"))  # true, and without a row
            member.notifier.flush()
        eventually(lambda: rings_received(node) >= 20, timeout=WITHIN)
        assert requests(cluster) == []
        assert [slot["pid"] for slot in slots(node)] == [slot["pid"] for slot in before]
        state = member.nodes.state("one")
    assert isinstance(state, LiveNode)
    refused = control_client.call_agent(node.run_directory, "peerd.doorbell")["refused"]
    assert refused == {"it was made with another secret": 20}


def run_peerd(node: ClusterNode, *words: str) -> subprocess.CompletedProcess[str]:
    """A command on the machine of a node."""
    return subprocess.run(
        [sys.executable, "-m", "peerd", *words, "--config", str(node.config)],
        cwd=node.cluster.folder,
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )


def test_the_command_line_of_one_node_steers_another(cluster: Cluster) -> None:
    one, two = cluster.up("one", "two")
    scaled = run_peerd(one, "scale", "jobs", "2", "--node", "two", "--json")
    assert json.loads(scaled.stdout) == {"node": "two", "scaled": {"kind": "jobs", "before": 1, "processes": 2}}
    reloaded = run_peerd(one, "reload", "jobs", "--node", "two")
    assert reloaded.stdout.splitlines() == ["jobs  done", "two is reloaded"]
    assert ([slot["generation"] for slot in slots(two)], len(slots(one))) == ([2, 2], 1)
    shown = run_peerd(one, "nodes", "show", "two")
    assert re.search(r"jobs-2 +RUNNING +\d+ +2 ", shown.stdout), shown
    refused = run_peerd(one, "scale", "nothing", "2", "--node", "two")
    assert (refused.returncode, "there is no kind 'nothing' to scale" in refused.stderr) == (1, True)
    job = cluster.enqueue("gated")
    cluster.wait_for(job, "began")
    stack = run_peerd(one, "tasks", "stack", str(job.id))
    assert "in gated" in stack.stdout
    assert "await asyncio.sleep(0.02)" in stack.stdout
    assert re.search(r"process \d+: \d+% cpu, .*B of memory, \d+ threads", stack.stdout)
    cluster.open(job)


async def test_the_api_steers_nodes(cluster: Cluster) -> None:
    [node] = await asyncio.to_thread(cluster.up, "one")
    transport = httpx.ASGITransport(create_app(cluster.client))
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
        assert (shown["live"]["pid"], shown["problem"]) == (node.master and node.master.pid, None)
        assert {slot["kind"] for slot in shown["live"]["slots"]} == {"agent", "manager", "jobs"}
        job = cluster.enqueue("gated")
        await asyncio.to_thread(cluster.wait_for, job, "began")
        stack = await http.get(f"/tasks/{job.id}/stack")
        assert (stack.status_code, stack.json()["node"]) == (200, "one")
        assert stack.json()["calls"][0]["frames"][0]["function"] == "gated"
        cluster.open(job)
        await asyncio.to_thread(cluster.done, job)
        late = await http.get(f"/tasks/{job.id}/stack")
        assert (late.status_code, late.json()["code"]) == (409, "TaskNotRunning")
