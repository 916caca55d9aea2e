from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import Any

from peerd.runtime.process import exit_codes
from tests.supervision.conftest import Nodes
from tests.supervision.nodes import AGENT, StubNode, eventually
from tests.supervision.test_reload import plan_anew, planned, reload

PORT = "127.0.0.1:0"


def web(number: int, *binds: str, **more: Any) -> dict[str, Any]:
    return {"name": f"web-{number}", "role": "web", "start": ["listen"], "sockets": binds, **more}


def listening(*binds: str) -> dict[str, dict[str, str]]:
    return {bind: {"bind": bind} for bind in binds}


def port_of(stub_node: StubNode, bind: str = PORT) -> int:
    [address] = [one["addresses"][0] for one in stub_node.status()["sockets"] if one["bind"] == bind]
    return int(address.rpartition(":")[2])


def request(to: int | Path) -> tuple[int, str]:
    """The process id of the process that answers, and the names of its sockets."""
    family = socket.AF_INET if isinstance(to, int) else socket.AF_UNIX
    with socket.socket(family) as client:
        client.settimeout(20)
        client.connect(("127.0.0.1", to) if isinstance(to, int) else str(to))
        log_text = client.makefile().read()
    pid, _, names = log_text.partition(" ")
    return int(pid), names


def test_several_processes_answer_on_one_port_which_never_refuses_while_they_die(node: Nodes) -> None:
    stub_node = node(AGENT, web(1, PORT), web(2, PORT), sockets=listening(PORT)).up()
    port = port_of(stub_node)
    assert f"ready: 3 processes, listening on 127.0.0.1:{port}\n" in stub_node.log_text()
    both = {stub_node.slot("web-1")["pid"], stub_node.slot("web-2")["pid"]}
    eventually(lambda: {request(port)[0] for _ in range(50)} == both)
    for slot in ("web-1", "web-2"):
        stub_node.kill(slot)
        assert request(port)[0] not in (None, stub_node.pid)
    killed = {stub_node.kill("web-1"), stub_node.kill("web-2")}
    assert request(port)[0] not in both | killed, "without any process, the connection has waited"


def test_a_unix_socket_and_a_port_serve_the_same_kind_and_the_file_goes_with_the_node(
    node: Nodes, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    bind = f"unix:{path}"
    stub_node = node(AGENT, web(1, bind, PORT), sockets=listening(bind, PORT)).up()
    assert request(path) == request(port_of(stub_node)) == (stub_node.slot("web-1")["pid"], str([PORT, bind]))
    assert stub_node.stop() == 0
    assert not path.exists()


def test_a_node_whose_port_is_taken_does_not_start_and_names_it(node: Nodes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        bind = f"127.0.0.1:{other.getsockname()[1]}"
        stub_node = node(AGENT, web(1, bind), sockets=listening(bind)).start()
        assert stub_node.wait() == exit_codes.REFUSED
    assert f"peerd: cannot start: cannot listen on {bind}: another process listens there" in stub_node.log_text()
    assert stub_node.notes() == [], "no process was started"


def test_a_node_whose_master_was_killed_can_listen_again_at_once(node: Nodes) -> None:
    stub_node = node(AGENT, web(1, PORT), sockets=listening(PORT)).up()
    bind = f"127.0.0.1:{port_of(stub_node)}"
    stub_node.signal(signal.SIGKILL)
    stub_node.wait()
    again = node(AGENT, web(1, bind), sockets=listening(bind)).up()
    assert request(port_of(again, bind))[0] == again.slot("web-1")["pid"]


def test_sockets_of_systemd_are_used_and_no_child_gets_their_variables(node: Nodes) -> None:
    """Two sockets of one name, as a socket unit with two ListenStream= has them, and one of another."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        stub_node = node(AGENT, web(1, "systemd:site"), sockets=listening("systemd:site"))
        stub_node.pass_fds = (one.fileno(), two.fileno())
        stub_node.before = f"""
import os
held = [os.dup(os.dup(fd)) for fd in {stub_node.pass_fds}]
high = [__import__("fcntl").fcntl(fd, 0, 50) for fd in held]
for number, fd in enumerate(high):
    os.dup2(fd, 3 + number)
os.environ |= {{"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2", "LISTEN_FDNAMES": "site:site"}}
"""
        stub_node.up()
        assert {request(each.getsockname()[1]) for each in (one, two)} == {
            (stub_node.slot("web-1")["pid"], "['systemd:site', 'systemd:site#2']")
        }
        [environment] = [fact["names"] for fact in stub_node.notes("environment")]
        assert not [name for name in environment if name.startswith("LISTEN_")]


def test_a_reload_listens_on_what_is_new_and_if_it_cannot_changes_nothing(node: Nodes, tmp_path: Path) -> None:
    old, new, nowhere = f"unix:{tmp_path / 'old'}", f"unix:{tmp_path / 'new'}", "unix:/nowhere/at/all"
    stub_node = planned(node(AGENT, web(1, old), sockets=listening(old))).up()
    stub_node.plan["sockets"] = listening(new)
    plan_anew(stub_node, web={"sockets": [new]})
    assert reload(stub_node, "web")["progress"] == "done"
    before = stub_node.slot("web-1")["pid"]
    assert request(tmp_path / "new")[0] == before
    eventually(lambda: not (tmp_path / "old").exists())
    stub_node.plan["sockets"] = listening(nowhere)
    plan_anew(stub_node, web={"sockets": [nowhere]})
    result = reload(stub_node)
    assert (result["progress"], result["error"]) == (
        "abandoned",
        f"cannot listen on {nowhere}: there is no such folder",
    )
    assert request(tmp_path / "new")[0] == before
