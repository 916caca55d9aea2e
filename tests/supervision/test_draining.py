"""Processes that drain: replaced or removed, they serve their clients as long as these stay."""

from __future__ import annotations

import math
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from peerd.runtime.process import exit_codes
from peerd.supervision import control_client
from tests.supervision.conftest import Nodes
from tests.supervision.nodes import AGENT, StubNode, eventually, is_alive
from tests.supervision.test_listening_sockets import listening
from tests.supervision.test_reload import plan_anew, planned, reload


@pytest.fixture
def clients(tmp_path: Path) -> Path:
    """A file that exists as long as the clients are connected."""
    path = tmp_path / "clients"
    path.touch()
    return path


def draining(number: int, clients: Path, **more: Any) -> dict[str, Any]:
    return {"name": f"door-{number}", "role": "gateway", "drains": True, "clients": str(clients), "grace": 1.0, **more}


def leaving_pids(stub_node: StubNode, slot: str = "door-1") -> list[int]:
    return [one["pid"] for one in stub_node.slot(slot)["leaving"]]


def scale(stub_node: StubNode, processes: int) -> None:
    command = {"command": "scale", "kind": "door", "processes": processes}
    control_client.send_command(stub_node.run_directory, command)


def test_reloads_leave_every_former_process_its_clients(node: Nodes, clients: Path) -> None:
    stub_node = node(AGENT, draining(1, clients)).up()
    former = []
    for _ in range(2):
        former.append(stub_node.slot("door-1")["pid"])
        assert reload(stub_node, "door")["progress"] == "done"
        assert leaving_pids(stub_node) == former
    eventually(lambda: len(stub_node.notes("stop", "door-1")) == 2)
    assert [note["grace"] for note in stub_node.notes("stop", "door-1")] == [math.inf] * 2
    slot = stub_node.slot("door-1")
    assert (slot["state"], slot["generation"]) == ("RUNNING", 3)
    assert all(is_alive(pid) for pid in (*former, slot["pid"]))
    clients.unlink()
    eventually(lambda: leaving_pids(stub_node) == [])
    eventually(lambda: len(stub_node.received("death")) == 2)
    causes = [(death["expected"], death["cause"]["text"]) for death in stub_node.received("death")]
    assert causes == [(True, "replaced by a reload (exit status 0)")] * 2


def test_a_stop_of_the_node_leaves_what_drains_its_grace_and_a_time_limit_is_for_reloads(
    node: Nodes, clients: Path
) -> None:
    limited = {**draining(1, clients, drain_timeout=600.0), "name": "limited-1"}
    stub_node = node(AGENT, draining(1, clients), limited).up()
    former = {slot: stub_node.slot(slot)["pid"] for slot in ("door-1", "limited-1")}
    reload(stub_node, "door", "limited")
    eventually(lambda: len(stub_node.notes("stop")) == 2)
    assert stub_node.stop() == exit_codes.OK
    for slot, first in {"door-1": math.inf, "limited-1": 600.0}.items():
        graces = [note["grace"] for note in stub_node.notes("stop", slot) if note["pid"] == former[slot]]
        assert graces == [first, 1.0]
        assert stub_node.notes("stopped", slot), "it was not killed"


def test_a_slot_that_drains_is_free_for_another_process(node: Nodes, clients: Path) -> None:
    stub_node = node(AGENT, draining(1, clients), draining(2, clients)).up()
    former = stub_node.slot("door-2")["pid"]
    scale(stub_node, 1)
    eventually(lambda: stub_node.slot("door-2")["state"] == "STOPPED")
    assert leaving_pids(stub_node, "door-2") == [former]
    scale(stub_node, 2)
    eventually(lambda: stub_node.slot("door-2")["state"] == "RUNNING")
    assert leaving_pids(stub_node, "door-2") == [former]
    scale(stub_node, 1)
    clients.unlink()
    eventually(lambda: [slot["name"] for slot in stub_node.status()["slots"]] == ["agent", "door-1"])


def test_a_removed_kind_drains_without_its_address_and_comes_back_by_its_new_plan(
    node: Nodes, clients: Path, tmp_path: Path
) -> None:
    path = tmp_path / "door"
    door = draining(1, clients, start=["listen"], sockets=[f"unix:{path}"])
    stub_node = planned(node(AGENT, door, sockets=listening(f"unix:{path}"))).up()
    former = stub_node.slot("door-1")["pid"]
    kind = next(kind for kind in stub_node.plan["kinds"] if kind["name"] == "door")
    plan_anew(stub_node, door=None)
    assert reload(stub_node)["kinds"]["door"] == "removed"
    eventually(lambda: not path.exists())
    assert leaving_pids(stub_node) == [former]
    plan_anew(stub_node, door={**kind, "grace": 0.5})
    assert reload(stub_node)["progress"] == "done"
    eventually(lambda: stub_node.slot("door-1")["state"] == "RUNNING")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        assert int(client.makefile().read().partition(" ")[0]) == stub_node.slot("door-1")["pid"]
    reload(stub_node, "door")
    assert stub_node.stop() == exit_codes.OK
    graces = {note["pid"]: note["grace"] for note in stub_node.notes("stop", "door-1")}
    assert graces == {former: 1.0} | {pid: 0.5 for pid in graces if pid != former}


def test_a_signal_ends_what_drains_with_its_grace(node: Nodes, clients: Path) -> None:
    stub_node = node(AGENT, draining(1, clients)).up()
    former = stub_node.slot("door-1")["pid"]
    reload(stub_node, "door")
    eventually(lambda: stub_node.notes("stop", "door-1"))
    os.kill(former, signal.SIGTERM)
    eventually(lambda: leaving_pids(stub_node) == [])
    assert [note["grace"] for note in stub_node.notes("stop", "door-1")] == [math.inf, 1.0]
    assert stub_node.slot("door-1")["generation"] == 2, "it has its successor already"
