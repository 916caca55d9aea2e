"""Web processes of a real node, with requests through real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from websockets.asyncio.client import connect as open_websocket
from websockets.exceptions import ConnectionClosed

from bench.web_load import KINDS, LoadClient
from peerd.runtime.process import exit_codes
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster, ClusterNode
from tests.cluster.conftest import MakeCluster
from tests.unit.web_server.apps import RawConnection as Connection

SITE, SINGLE = "127.0.0.1", "127.0.0.2"
"""Where its two kinds of processes listen."""


@pytest.fixture(scope="module")
def shared(module_cluster: MakeCluster) -> Cluster:
    """A node with two kinds of web processes, whose log is for programs."""
    cluster = module_cluster("sqlite")
    cluster.copy("site_app.py")
    site = {"app": "site_app:app", "bind": f"{SITE}:0"}
    limits = {"keep_alive": "60s", "body_timeout": "500ms", "min_body_rate": "10kB"}
    sections = {
        "web.site": {**site, "processes": 2, "recycle_after": 100},
        "web.site.options": {"word": "hello"},
        "web.single": {**site, "bind": f"{SINGLE}:0", **limits},
        "schedules.once": {"run": "site_app:scheduled", "workers": ["site"], "interval": "1h", "immediate": True},
        "alerts.all": {"log": True},
        "logging": {"format": "json"},
    }
    cluster.up("one", workers={}, sections=sections)
    return cluster


@pytest.fixture
def node(shared: Cluster) -> ClusterNode:
    for name in ("entered", "gate", "later", "ended"):
        (shared.folder / name).unlink(missing_ok=True)
    return shared.reset().nodes[0]


async def connect(node: ClusterNode, host: str = SINGLE) -> Connection:
    return Connection(*await asyncio.open_connection(host, node.port(host)))


async def wait_for(condition: Callable[[], object], node: ClusterNode) -> None:
    await asyncio.to_thread(eventually, condition, timeout=WITHIN, message=node.log_text)


async def request_slot(node: ClusterNode, host: str = SINGLE) -> str:
    """The slot that answers."""
    connection = await connect(node, host)
    status, _, slot = await connection.answered("/")
    connection.writer.close()
    assert status == 200
    return slot


async def test_web_processes_are_workers_and_a_killed_one_is_replaced_while_its_port_never_refuses(
    node: ClusterNode,
) -> None:
    folder, client = node.cluster.folder, node.cluster.client
    async with asyncio.timeout(WITHIN):
        slots: set[str] = set()
        while slots != {"site-1", "site-2"}:
            slots.add(await request_slot(node, SITE))
        notifying_client = await connect(node, SITE)
        await notifying_client.answered("/notify")
        notifying_client.writer.close()
        for slot in slots:
            await wait_for((folder / f"hello-{slot}").exists, node)
        await wait_for((folder / "scheduled").exists, node)
        killed = node.kill("site-1")
        replaced = node.replaced("site-1", killed)
        while not replaced():
            await request_slot(node, SITE)
    [record] = [process for process in client.nodes.processes(ended=True) if process.pid == killed]
    assert record.role == "web"
    eventually(lambda: {p.pid: p.cause for p in client.nodes.processes(ended=True)}[killed] == "killed by SIGKILL")


@pytest.mark.slow
async def test_an_exception_outside_of_requests_costs_the_process_alone_and_a_log_for_programs_has_it_in_an_object(
    node: ClusterNode,
) -> None:
    pid = node.pid("single-1")
    slow, fails, taints, busy = [await connect(node) for _ in range(4)]
    busy.request("/gated")
    await wait_for((node.cluster.folder / "entered").exists, node)
    slow.send("POST /reads HTTP/1.1\nhost: x\ncontent-length: 100000\n\n" + "a" * 4000)
    assert (await slow.answer())[0] == 408
    assert (await fails.answered("/fails"))[0] == 500
    assert node.pid("single-1") == pid
    await taints.answered("/taints")
    await wait_for(node.replaced("single-1", pid), node)
    assert await request_slot(node) == "single-1"
    (node.cluster.folder / "gate").touch()
    assert (await busy.answer())[0] == 200, "what it had begun is answered"
    for connection in (slow, fails, taints, busy):
        connection.writer.close()
    await wait_for(lambda: "ZeroDivisionError" in node.log_text() and '"alert: ' in node.log_text(), node)
    entries = [json.loads(line) for line in node.log_text().rpartition("\n")[0].splitlines()]
    assert {entry["slot"] for entry in entries} >= {"master", "agent", "single-1"}
    assert any(entry["event"].startswith("alert: ") for entry in entries), "of the agent"
    assert any("ZeroDivisionError" in entry.get("exception", "") for entry in entries), "of a thread"


async def test_no_request_is_lost_while_processes_are_recycled_and_replaced(node: ClusterNode) -> None:
    stopped = asyncio.Event()
    clients = [LoadClient(node.port(SITE), kind) for kind in KINDS for _ in range(5)]
    asking = [asyncio.create_task(client.run(stopped)) for client in clients]
    recycled = node.log_text().count("requests (recycle_after)")
    await wait_for(lambda: node.log_text().count("requests (recycle_after)") > recycled, node)
    await asyncio.to_thread(node.reload, "site")
    stopped.set()
    await asyncio.gather(*asking)
    counts = sum((client.counts for client in clients), start=clients[0].counts.__class__())
    assert counts["ok"] > 100
    assert dict(counts) == {"ok": counts["ok"]}


async def test_what_is_under_way_when_its_process_is_replaced_or_stopped_is_answered(node: ClusterNode) -> None:
    folder = node.cluster.folder
    busy, idle = await connect(node), await connect(node)
    websocket = await open_websocket(f"ws://{SINGLE}:{node.port(SINGLE)}")
    assert (await idle.answered("/"))[:2] == (200, None)
    busy.request("/gated")
    await wait_for((folder / "entered").exists, node)
    await asyncio.to_thread(node.reload, "single")
    with pytest.raises(ConnectionClosed):
        await websocket.recv()
    assert websocket.close_code == 1012
    assert (await idle.answered("/"))[:2] == (200, "close")
    (folder / "gate").touch()
    status, headers, _ = await busy.answer()
    assert (status, headers["connection"]) == (200, "close")
    await wait_for((folder / "ended").exists, node)

    for path in ("entered", "gate"):
        (folder / path).unlink()
    last = await connect(node)
    await last.answered("/later")
    last.request("/gated")
    await wait_for((folder / "entered").exists, node)
    stopping = asyncio.create_task(asyncio.to_thread(node.stop))
    await wait_for(lambda: "stopping" in node.log_text(), node)
    (folder / "gate").touch()
    assert (await last.answer())[0] == 200
    assert await stopping == exit_codes.OK
    assert (folder / "later").exists()
    assert (folder / "ended").read_text().split().count("single-1") == 2
    for connection in (busy, idle, last):
        connection.writer.close()
