"""The control socket of a real master, and its clients, also hostile ones."""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from peerd.runtime.frames import receive
from peerd.runtime.process import exit_codes
from peerd.supervision import control_client
from tests.supervision.conftest import Nodes
from tests.supervision.nodes import AGENT, WORKER, StubNode, eventually
from tests.supervision.test_reload import reload

STRANGER = 12_345
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")


def connected(stub_node: StubNode) -> socket.socket:
    end = socket.socket(socket.AF_UNIX)
    with control_client.control_address(stub_node.run_directory) as address:
        end.connect(address)
    end.settimeout(10)
    return end


def answered(stub_node: StubNode, body: bytes) -> Mapping[str, Any] | None:
    """What a frame of any bytes is answered with, and that the stream ends if nothing can follow it."""
    with connected(stub_node) as end:
        end.sendall(struct.pack(">I", len(body)) + body)
        return receive(end)


def processor_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def stub_node(module_node: Nodes) -> StubNode:
    """A node that the tests look at."""
    return module_node(AGENT, WORKER, {"name": "any-1", "role": "command", "command": ["sleep", "600"]}).up()


def test_invalid_commands_are_answered_with_the_error_and_harm_nothing(stub_node: StubNode) -> None:
    for body in (b"", b"{", b"\xff\xfe", b"[]", b"[" * 100_000):
        answer = answered(stub_node, body)
        assert answer is not None, body[:10]
        assert "a frame holds" in str(answer["error"])
    with connected(stub_node) as end:
        end.sendall(b"\xff" * 4)
        answer = receive(end)
        assert answer is not None
        assert "this is no frame" in str(answer["error"])
        assert end.recv(1) == b"", "nothing can follow it"
    half = "\\ud800"
    for command in (
        f'{{"command": "reload", "kinds": ["{half}"]}}',
        f'{{"command": "call-agent", "action": "{half}"}}',
        '{"command": "call-agent", "action": [], "timeout": "x"}',
        '{"command": "scale", "kind": {}, "processes": true}',
        "{}",
    ):
        assert answered(stub_node, command.encode()) is not None, command
    eventually(lambda: stub_node.status()["reloads"] and stub_node.status()["reloads"][-1]["progress"] != "running")
    assert "\ud800" in json.dumps(stub_node.status()["reloads"], ensure_ascii=False), "and it can still be encoded"
    assert stub_node.state() == "running"


def test_what_cannot_be_done_is_refused_with_the_cause(stub_node: StubNode) -> None:
    for command, error in (
        ({"command": "dance"}, "unknown command 'dance': one of status, stop"),
        ({"command": "reopen-logs"}, "has no log file"),
        ({"command": "scale", "kind": "vidoe", "processes": 1}, "there is no kind 'vidoe' to scale; only video, any"),
        ({"command": "scale", "kind": "video", "processes": -1}, "processes must be a number from 0 to 1000"),
        ({"command": "scale", "kind": "video", "processes": True}, "processes must be a number from 0 to 1000"),
        ({"command": "call-agent", "action": "dance"}, "no handler is registered for 'dance' there"),
        ({"command": "call-agent", "action": "note", "timeout": []}, "its `timeout` must be seconds"),
        ({"command": "call-agent"}, "its `action` must be a text"),
        ({"command": "call-agent", "action": "block", "data": 4.0, "timeout": 0.2}, "timed out"),
    ):
        with pytest.raises(control_client.CommandRefused, match=re.escape(error)):
            control_client.send_command(stub_node.run_directory, command)
    assert reload(stub_node, "vidoe")["error"] == "there is no vidoe; only agent, any, video"


def test_the_master_loads_the_standard_library_and_its_own_few_modules_only(stub_node: StubNode) -> None:
    loaded = control_client.send_command(stub_node.run_directory, {"command": "modules"})["modules"]
    site = {"sitecustomize", "usercustomize", "_distutils_hack"}  # what an interpreter loads without an import
    known = sys.stdlib_module_names | site | {"peerd", "__main__"}
    assert not {m for m in loaded if m.partition(".")[0] not in known and not m.startswith("__editable__")}
    own = {m for m in loaded if m.startswith("peerd.") and not m.startswith("peerd.supervision")}
    assert {m for m in own if m.count(".") == 1} == {"peerd.domain", "peerd.runtime"}
    assert len(own) <= 16, "and few of these"
    assert not {m for m in loaded if m in ("asyncio", "sqlite3", "http", "email")}


def test_idle_connections_cost_the_master_no_time_and_are_closed(node: Nodes) -> None:
    stub_node = node(AGENT, WORKER)
    stub_node.before = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))"
    stub_node.up()
    with ExitStack() as ends:
        idle = [ends.enter_context(connected(stub_node)) for _ in range(60)]
        spent = processor_seconds(stub_node.pid)
        time.sleep(1.0)
        assert processor_seconds(stub_node.pid) - spent < 0.3
        assert stub_node.state() == "running", "other clients are answered"
        assert idle[0].recv(1) == b"", "it is closed"


@pytest.mark.slow
def test_an_idle_connection_is_closed_and_one_that_waits_for_the_exit_is_not(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "run": ["block"], "grace": 12.0, "release_time": 0.5}).up()
    eventually(lambda: stub_node.notes("blocks"))
    with connected(stub_node) as idle:
        control_client.stop(stub_node.run_directory)
        assert stub_node.wait(2) == exit_codes.OK, "it was waited for longer than the idle one was kept"
        assert idle.recv(1) == b""


def test_the_soft_limit_of_descriptors_is_raised_for_the_node(node: Nodes) -> None:
    stub_node = node(AGENT, {"name": "any-1", "role": "command", "command": ["sleep", "600"]})
    stub_node.before = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096))"
    stub_node.up()
    for pid in (stub_node.pid, stub_node.slot("agent")["pid"], stub_node.slot("any-1")["pid"]):
        [limits] = [line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if "open files" in line]
        assert limits.split()[3:5] == ["4096", "4096"]


# ---------------------------------------------------------------- the run directory


def refused(stub_node: StubNode) -> str:
    assert stub_node.start().wait() == exit_codes.REFUSED
    return stub_node.log_text()


def test_a_run_directory_that_others_may_write_to_is_refused(node: Nodes) -> None:
    for mode, log_format in ((0o777, "json"), (0o770, "text"), (0o1777, "text"), (0o702, "text")):
        stub_node = node(AGENT, log_format=log_format)
        stub_node.run_directory.mkdir()
        stub_node.run_directory.chmod(mode)
        said = refused(stub_node)
        assert f"others may write to the run directory {stub_node.run_directory}" in said, oct(mode)
        assert not list(stub_node.run_directory.iterdir()), "nothing was written there"
        if log_format == "json":
            entry = json.loads(said)
            assert (entry["level"], entry["event"].partition(":")[0]) == ("error", "cannot start")


@only_root
def test_a_run_directory_of_another_user_is_refused(node: Nodes) -> None:
    stub_node = node(AGENT)
    stub_node.run_directory.mkdir(mode=0o700)
    os.chown(stub_node.run_directory, STRANGER, STRANGER)
    assert f"the run directory {stub_node.run_directory} belongs to user {STRANGER}" in refused(stub_node)
    assert not list(stub_node.run_directory.iterdir())


def test_nothing_is_written_through_a_link(node: Nodes) -> None:
    for name in ("master.pid", "lock", "peerd.log"):
        stub_node = node(AGENT)
        stub_node.plan["log_file"] = str(stub_node.run_directory / "peerd.log")
        stub_node.run_directory.mkdir()
        precious = stub_node.folder / "precious"
        precious.write_text("precious")
        (stub_node.run_directory / name).symlink_to(precious)
        assert f"{stub_node.run_directory / name} is a symbolic link" in refused(stub_node)
        assert precious.read_text() == "precious"


FAKE = """
import os, socket, struct, sys
end = socket.socket(socket.AF_UNIX)
end.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
os.setuid(int(sys.argv[2]))
end.listen()
print("listening", flush=True)
body = b'{"node": "forged", "state": "running"}'
while True:
    client, _ = end.accept()
    try:
        client.recv(4096)
        client.sendall(struct.pack(">I", len(body)) + body)
    except OSError:
        pass
"""

SEND_REQUEST = """
import os, sys
from peerd.supervision import control_client
os.setuid(int(sys.argv[2]))
try:
    print(control_client.status(sys.argv[1])["node"])
except Exception as error:
    print(type(error).__name__, error)
"""


@only_root
def test_a_control_socket_of_another_user_is_not_trusted(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(0o755)
    path = tmp_path / "control.sock"
    with subprocess.Popen([sys.executable, "-c", FAKE, str(path), "54321"], stdout=subprocess.PIPE) as fake:
        assert fake.stdout is not None
        fake.stdout.readline()
        try:
            log_text = {user: send_request_as(tmp_path, user) for user in (str(STRANGER), "54321")}
        finally:
            fake.kill()
    assert "belongs to user 54321" in log_text[str(STRANGER)], log_text
    assert log_text["54321"] == "forged\n", "it is its own"


def send_request_as(run_directory: Path, user: str) -> str:
    command = [sys.executable, "-c", SEND_REQUEST, str(run_directory), user]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
