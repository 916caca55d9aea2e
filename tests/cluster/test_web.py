"""Web processes of a real node, with requests through real sockets."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect as open_websocket
from websockets.exceptions import ConnectionClosed

from bench.reload import measure
from bench.web_load import KINDS, LoadClient
from peerd.runtime.process import exit_codes
from peerd.supervision.control import control_client
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster, ClusterNode
from tests.unit.web_server.apps import RawConnection as Connection

SITE = Path(__file__).parent / "site_app.py"


def site(cluster: Cluster, **settings: Any) -> ClusterNode:
    shutil.copy(SITE, cluster.folder / SITE.name)
    web = {"app": "site_app:app", "bind": "127.0.0.1:0", "processes": 2, **settings}
    schedule = {"run": "site_app:scheduled", "workers": ["site"], "interval": "1h", "immediate": True}
    sections = {"web.site": web, "web.site.options": {"word": "hello"}, "schedules.once": schedule}
    return cluster.node("one", workers={}, sections=sections)


def port_of(node: ClusterNode) -> int:
    [socket] = control_client.status(node.run_directory)["sockets"]
    return int(socket["addresses"][0].rpartition(":")[2])


def reload(node: ClusterNode) -> None:
    number = control_client.send_command(node.run_directory, {"command": "reload", "kinds": ["site"]})["number"]

    def over() -> bool:
        [found] = [one for one in control_client.status(node.run_directory)["reloads"] if one["number"] == number]
        assert found["progress"] != "abandoned", found["error"]
        return bool(found["progress"] == "done")

    eventually(over, timeout=WITHIN, message=node.log_text)


def pids_of_site(node: ClusterNode) -> list[int]:
    slots = control_client.status(node.run_directory)["slots"]
    return [slot["pid"] for slot in slots if slot["name"].startswith("site-")]


async def connect(port: int) -> Connection:
    return Connection(*await asyncio.open_connection("127.0.0.1", port))


async def request_slot(port: int) -> str:
    """The slot that answers."""
    connection = await connect(port)
    status, _, slot = await connection.answered("/")
    connection.writer.close()
    assert status == 200
    return slot


async def test_web_processes_are_workers_and_a_killed_one_is_replaced_while_its_port_never_refuses(
    cluster: Cluster,
) -> None:
    node = site(cluster).up()
    port = port_of(node)
    async with asyncio.timeout(WITHIN):
        slots: set[str] = set()
        while slots != {"site-1", "site-2"}:
            slots.add(await request_slot(port))
        notifying_client = await connect(port)
        await notifying_client.answered("/notify")
        notifying_client.writer.close()
        for slot in slots:
            await asyncio.to_thread(eventually, (cluster.folder / f"hello-{slot}").exists)
        await asyncio.to_thread(
            eventually, (cluster.folder / "scheduled").exists, timeout=WITHIN, message=node.log_text
        )
        killed = node.kill("site-1")
        replaced = node.replaced("site-1", killed)
        while not replaced():
            await request_slot(port)
    records = {process.pid: process for process in cluster.client.nodes.processes(ended=True)}
    assert records[killed].role == "web"
    eventually(lambda: {p.pid: p.cause for p in cluster.client.nodes.processes(ended=True)}[killed])
    causes = {process.pid: process.cause for process in cluster.client.nodes.processes(ended=True)}
    assert "SIGKILL" in (causes[killed] or "")


async def test_with_a_log_for_programs_each_line_is_an_object_and_the_limits_of_a_section_hold(
    cluster: Cluster,
) -> None:
    shutil.copy(SITE, cluster.folder / SITE.name)
    web = {"app": "site_app:app", "bind": "127.0.0.1:0", "body_timeout": "500ms", "min_body_rate": "10kB"}
    sections = {"web.site": web, "alerts.all": {"log": True}, "logging": {"format": "json"}}
    node = cluster.node("one", workers={}, sections=sections).up()
    port, pid = port_of(node), node.pid("site-1")
    slow, fails, taints = [await connect(port) for _ in range(3)]
    slow.send("POST /reads HTTP/1.1\nhost: x\ncontent-length: 100000\n\n" + "a" * 4000)
    assert (await slow.answer())[0] == 408
    assert (await fails.answered("/fails"))[0] == 500
    await taints.answered("/taints")
    for connection in (slow, fails, taints):
        connection.writer.close()
    await asyncio.to_thread(eventually, node.replaced("site-1", pid), timeout=WITHIN, message=node.log_text)
    pid = node.kill("site-1")
    await asyncio.to_thread(eventually, node.replaced("site-1", pid), timeout=WITHIN, message=node.log_text)
    assert node.stop() == 0
    entries = [json.loads(line) for line in node.log_text().splitlines()]
    assert {entry["slot"] for entry in entries} >= {"master", "agent", "site-1"}
    assert any(entry["event"].startswith("alert: ") for entry in entries), "of the agent"
    assert any("ZeroDivisionError" in entry.get("exception", "") for entry in entries), "of a thread"


async def test_what_is_under_way_when_its_process_is_replaced_or_stopped_is_answered(cluster: Cluster) -> None:
    node = site(cluster, processes=1, keep_alive="60s").up()
    port = port_of(node)
    busy, idle, websocket = await connect(port), await connect(port), await open_websocket(f"ws://127.0.0.1:{port}")
    assert (await idle.answered("/"))[:2] == (200, None)
    busy.request("/gated")
    await asyncio.to_thread(eventually, (cluster.folder / "entered").exists)
    await asyncio.to_thread(reload, node)
    with pytest.raises(ConnectionClosed):
        await websocket.recv()
    assert websocket.close_code == 1012
    assert (await idle.answered("/"))[:2] == (200, "close")
    (cluster.folder / "gate").touch()
    status, headers, _ = await busy.answer()
    assert (status, headers["connection"]) == (200, "close")
    eventually((cluster.folder / "ended").exists, timeout=WITHIN, message=node.log_text)

    for path in ("entered", "gate"):
        (cluster.folder / path).unlink()
    last = await connect(port)
    await last.answered("/later")
    last.request("/gated")
    await asyncio.to_thread(eventually, (cluster.folder / "entered").exists)
    stopping = asyncio.create_task(asyncio.to_thread(node.stop))
    await asyncio.to_thread(eventually, lambda: "stopping" in node.log_text())
    (cluster.folder / "gate").touch()
    assert (await last.answer())[0] == 200
    assert await stopping == exit_codes.OK
    assert (cluster.folder / "later").exists()
    assert (cluster.folder / "ended").read_text() == "ended\n" * 2
    for connection in (busy, idle, last):
        connection.writer.close()


async def test_a_request_that_raises_costs_itself_and_an_exception_outside_of_requests_the_process(
    cluster: Cluster,
) -> None:
    node = site(cluster, processes=1).up()
    port, pid = port_of(node), node.pid("site-1")
    busy, other = await connect(port), await connect(port)
    busy.request("/gated")
    await asyncio.to_thread(eventually, (cluster.folder / "entered").exists)
    assert (await other.answered("/fails"))[0] == 500
    assert node.pid("site-1") == pid
    again = await connect(port)
    assert (await again.answered("/taints"))[0] == 200
    await asyncio.to_thread(eventually, node.replaced("site-1", pid), timeout=WITHIN, message=node.log_text)
    assert await request_slot(port) == "site-1"
    (cluster.folder / "gate").touch()
    assert (await busy.answer())[0] == 200, "what it had begun is answered"
    cause = await asyncio.to_thread(eventually, lambda: node.slot("site-1")["last_cause"], timeout=WITHIN)
    assert (cause["kind"], cause["status"]) == ("tainted", 70)
    for connection in (busy, other, again):
        connection.writer.close()


def test_a_lifespan_that_fails_is_a_boot_that_fails_in_its_own_words(cluster: Cluster) -> None:
    node = site(cluster)
    (cluster.folder / "broken").touch()
    node.start()
    assert node.master is not None
    assert node.master.wait(WITHIN) == exit_codes.BOOT_FAILED
    assert "StartupFailed: the app's startup failed: LookupError: there is no cache" in node.log_text()


async def test_no_request_is_lost_while_processes_are_recycled_and_replaced(cluster: Cluster) -> None:
    node = site(cluster, recycle_after=100).up()
    stopped = asyncio.Event()
    clients = [LoadClient(port_of(node), kind) for kind in KINDS for _ in range(5)]
    asking = [asyncio.create_task(client.run(stopped)) for client in clients]
    await asyncio.to_thread(eventually, lambda: "requests (recycle_after)" in node.log_text(), timeout=WITHIN)
    await asyncio.to_thread(reload, node)
    stopped.set()
    await asyncio.gather(*asking)
    counts = sum((client.counts for client in clients), start=clients[0].counts.__class__())
    assert counts["ok"] > 100
    assert dict(counts) == {"ok": counts["ok"]}


async def test_a_process_that_is_recycled_serves_until_the_next_one_is_ready(cluster: Cluster) -> None:
    node = site(cluster, recycle_after=3, processes=1).up()
    port = port_of(node)
    (cluster.folder / "site-waits").touch()
    [first] = pids_of_site(node)
    async with asyncio.timeout(WITHIN):
        while "requests (recycle_after)" not in node.log_text():
            assert await request_slot(port) == "site-1"
        for _ in range(20):  # its successor does not start
            assert await request_slot(port) == "site-1"
        (cluster.folder / "site-waits").unlink()
        while pids_of_site(node) == [first]:
            assert await request_slot(port) == "site-1"
    assert f"site-1 (process {first}) is replaced: it has answered" in node.log_text()
    eventually(lambda: not Path(f"/proc/{first}").exists(), timeout=WITHIN)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_bench_loses_no_request(capsys: pytest.CaptureFixture[str]) -> None:
    result = measure("peerd", 3)
    assert result.problem == ""
    assert {kind: dict(counts).keys() for kind, counts in result.counts.items()} == dict.fromkeys(
        KINDS, {"ok": 0}.keys()
    )
