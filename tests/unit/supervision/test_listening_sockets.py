from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from peerd.domain.bind_address import MAX_UNIX_PATH_BYTES
from peerd.supervision import listening_sockets as module
from peerd.supervision.listening_sockets import ListenError, ListeningSockets, SystemdSockets
from peerd.supervision.plan import SocketPlan
from tests.support.rows import rows


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[ListeningSockets]:
    monkeypatch.setattr(module, "BIND_TIMEOUT", 0.0)
    made = ListeningSockets(SystemdSockets({}, os.getpid()))
    yield made
    made.close()


def plans(*binds: str, **how: object) -> dict[str, SocketPlan]:
    return {bind: SocketPlan(bind, **how) for bind in binds}  # type: ignore[arg-type]  # of many types


def address(sockets: ListeningSockets, name: str) -> str:
    [found] = [one["addresses"] for one in sockets.to_json() if one["name"] == name]
    assert isinstance(found, list)
    return str(found[0])


def accepts(sockets: ListeningSockets, name: str, client: socket.socket) -> bool:
    listening = socket.socket(fileno=os.dup(sockets.descriptors([name])[name]))
    with client, listening:
        listening.setblocking(True)
        listening.settimeout(5)
        listening.accept()[0].close()
    return True


def test_ipv4_and_ipv6_can_have_the_same_port(sockets: ListeningSockets) -> None:
    try:
        sockets.bind(plans("[::1]:0"))
    except ListenError as error:
        pytest.skip(f"no IPv6 here: {error}")
    both = ":" + address(sockets, "[::1]:0").rpartition(":")[2]
    sockets.apply(plans("[::1]:0", both))
    assert address(sockets, both) == f"0.0.0.0{both}"


def test_a_taken_port_is_named_unless_it_is_released_soon(
    sockets: ListeningSockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        bind = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(ListenError) as refused:
            sockets.bind(plans("127.0.0.1:0", bind))
        assert f"cannot listen on {bind}: another process listens there (find it with: ss" in str(refused.value)
        assert sockets.to_json() == [], "all or nothing"
        monkeypatch.setattr(module, "BIND_TIMEOUT", 30.0)
        monkeypatch.setattr("time.sleep", lambda _: other.close())
        sockets.bind(plans(bind))
        assert address(sockets, bind) == bind


@rows("bind, problem", [
    ("192.0.2.1:80", "this machine has no such address"), ("unix:/nowhere/at/all", "there is no such folder"),
    ("systemd:site", "there is no such socket; systemd has passed no sockets"),
    ("nonsense", "'nonsense' names no port"),
    (f"unix:/{'x' * MAX_UNIX_PATH_BYTES}", f"at most {MAX_UNIX_PATH_BYTES} bytes"),
])  # fmt: skip
def test_an_address_that_cannot_be_bound_reports_the_reason(sockets: ListeningSockets, bind: str, problem: str) -> None:
    with pytest.raises(ListenError, match=problem) as refused:
        sockets.bind(plans(bind))
    assert refused.value.bind == bind
    environment = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "site", "PATH": "/bin"}
    with pytest.raises(ListenError, match="systemd has passed its sockets to process 1, and this is 2"):
        SystemdSockets(environment, 2).take("systemd:site", "site")
    assert environment == {"PATH": "/bin"}, "no child may take them for its own"


def connect(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(path))
    return client


def test_a_socket_of_a_dead_owner_is_replaced_and_what_is_not_its_own_left_alone(
    sockets: ListeningSockets, tmp_path: Path
) -> None:
    path = tmp_path / "site.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(ListenError, match="another process listens there"):
            sockets.bind(plans(f"unix:{path}"))
    sockets.bind(plans(f"unix:{path}", mode=0o640))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert accepts(sockets, f"unix:{path}", connect(path))
    [descriptor] = sockets.descriptors([f"unix:{path}"]).values()
    assert not os.get_inheritable(descriptor), "inheritance is decided for each child"
    assert not os.get_blocking(descriptor)
    sockets.close()
    assert not path.exists()
    precious = tmp_path / "precious"
    precious.write_text("data")
    with pytest.raises(ListenError, match="a file of this name exists and is no socket"):
        sockets.bind(plans(f"unix:{precious}"))
    assert precious.read_text() == "data"
    sockets.bind(plans(f"unix:{path}"))
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        sockets.close()
        assert path.exists(), "the name was taken meanwhile"


def test_a_change_keeps_the_rest_or_changes_nothing(sockets: ListeningSockets, tmp_path: Path) -> None:
    kept, removed, added = (f"unix:{tmp_path / name}" for name in ("kept", "removed", "added"))
    sockets.bind(plans(kept, removed))
    before = sockets.descriptors([kept])
    waiting = connect(tmp_path / "kept")
    with pytest.raises(ListenError):
        sockets.apply(plans(added, "unix:/nowhere/at/all"))
    assert (list(sockets.plans), (tmp_path / "added").exists()) == ([kept, removed], False)
    sockets.apply(plans(kept, added, backlog=5))
    assert sockets.descriptors([kept]) == before
    assert accepts(sockets, kept, waiting)
    assert accepts(sockets, added, connect(tmp_path / "added"))
    assert not (tmp_path / "removed").exists()
    with pytest.raises(OSError, match=f"the node no longer listens on {removed}"):
        sockets.descriptors([removed])
