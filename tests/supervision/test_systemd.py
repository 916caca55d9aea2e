"""A node under systemd, which a socket simulates, and as the first process of a container."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from peerd.supervision import control_client
from peerd.supervision.sd_notify import AGENT_LOST_AFTER
from tests.supervision.conftest import Nodes
from tests.supervision.nodes import AGENT, WORKER, StubNode, eventually
from tests.unit.supervision.test_sd_notify import FakeSystemd


class Notifications(FakeSystemd):
    """A systemd that keeps all notifications."""

    kept: list[str]

    def lines(self) -> list[str]:
        self.kept += [line for datagram in self.received() for line in datagram]
        return self.kept


@pytest.fixture
def notifications(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notifications]:
    address = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    notifications = Notifications(address)
    notifications.kept = []
    yield notifications
    notifications.end.close()


def test_systemd_is_notified_of_a_start_a_reload_a_stop_and_a_running_loop(
    node: Nodes, notifications: Notifications
) -> None:
    stub_node = node(AGENT, {**WORKER, "start": ["sleep 0.5"], "work": 0.3}).start()
    eventually(lambda: "STATUS=starting: 1 of 2 processes run; video-1 STARTING" in notifications.lines())
    assert "READY=1" not in notifications.lines()
    eventually(lambda: "READY=1" in notifications.lines())
    assert "STATUS=running: 2 of 2 processes run" in notifications.lines()
    for process in (stub_node.pid, *[int(slot["pid"]) for slot in stub_node.status()["slots"]]):
        names = {entry.partition(b"=")[0] for entry in Path(f"/proc/{process}/environ").read_bytes().split(b"\0")}
        if process != stub_node.pid:
            assert not names & {b"NOTIFY_SOCKET", b"WATCHDOG_USEC"}
    fed = notifications.lines().count("WATCHDOG=1")
    eventually(lambda: notifications.lines().count("WATCHDOG=1") > fed + 2)

    control_client.send_command(stub_node.run_directory, {"command": "reload", "kinds": ["video"]})
    eventually(lambda: "RELOADING=1" in notifications.lines() and notifications.lines().count("READY=1") == 2)
    reloading = notifications.lines().index("RELOADING=1")
    assert notifications.lines()[reloading + 1].startswith("MONOTONIC_USEC=")

    assert stub_node.stop() == 0
    assert "STOPPING=1" in notifications.lines()
    assert "EXTEND_TIMEOUT_USEC=30000000" in notifications.lines()[notifications.lines().index("STOPPING=1") :]


def test_a_slot_that_was_scaled_away_and_still_drains_is_none_that_is_missing(
    node: Nodes, notifications: Notifications, tmp_path: Path
) -> None:
    clients = tmp_path / "clients"
    clients.touch()
    door = {"role": "gateway", "drains": True, "clients": str(clients), "grace": 0.5}
    stub_node = node(AGENT, {"name": "door-1", **door}, {"name": "door-2", **door}).up()
    scale = {"command": "scale", "kind": "door", "processes": 1}
    control_client.send_command(stub_node.run_directory, scale)
    eventually(lambda: notifications.lines()[-1:] and "STATUS=running: 2 of 2 processes run" in notifications.lines())
    assert stub_node.slot("door-2")["state"] == "STOPPED"


def test_a_frozen_master_does_not_feed_the_watchdog(node: Nodes, notifications: Notifications) -> None:
    stub_node = node(AGENT).up()
    stub_node.signal(signal.SIGSTOP)
    eventually(lambda: "\nState:\tT" in Path(f"/proc/{stub_node.pid}/status").read_text())
    fed = notifications.lines().count("WATCHDOG=1")
    with contextlib.suppress(subprocess.TimeoutExpired):
        assert stub_node.master
        stub_node.master.wait(1.0)
    assert notifications.lines().count("WATCHDOG=1") == fed
    stub_node.signal(signal.SIGCONT)
    eventually(lambda: notifications.lines().count("WATCHDOG=1") > fed)


@pytest.mark.slow
def test_a_node_whose_agent_fails_again_and_again_has_systemd_start_it_again(
    node: Nodes, notifications: Notifications
) -> None:
    """The master itself never gives up: what it does is to let the watchdog starve."""
    stub_node = node({**AGENT, "weak": (2, 1000), "backoff_maximum": 0.1}, WORKER).up()
    worker = stub_node.slot("video-1")["pid"]
    stub_node.kill("agent")
    eventually(
        lambda: stub_node.slot("agent")["restarts"] > AGENT_LOST_AFTER,
        timeout=60.0,
        message="it is tried again and again",
    )
    fed = notifications.lines().count("WATCHDOG=1")
    eventually(lambda: stub_node.slot("agent")["restarts"] > AGENT_LOST_AFTER + 3)
    assert notifications.lines().count("WATCHDOG=1") == fed
    assert (stub_node.status()["state"], stub_node.slot("video-1")["pid"]) == ("running", worker)
    control_client.stop(stub_node.run_directory, fast=True, timeout=60)


def may_make_a_pid_namespace() -> bool:
    tried = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, check=False, timeout=10
    )
    return tried.returncode == 0


in_a_container = pytest.mark.skipif(
    not may_make_a_pid_namespace(), reason="unshare --pid is not allowed here: the master cannot be process 1"
)


class Container(StubNode):
    """A node whose master is process 1 of a separate namespace."""

    PREFIX: tuple[str, ...] = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")

    @property
    def pid(self) -> int:
        """Of the master, seen from here."""
        assert self.master is not None
        children = Path(f"/proc/{self.master.pid}/task/{self.master.pid}/children")
        return int(eventually(children.read_text))


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(
        tmp_path,
        AGENT,
        {**WORKER, "run": ["orphan"], "work": 0.3},
        {"name": "tunnel-1", "role": "command", "command": ["sleep", "600"]},
    )


@pytest.mark.slow
@in_a_container
def test_as_process_1_it_reaps_orphans_and_stops_normally(container: Container) -> None:
    stub_node = container.up()
    try:
        assert stub_node.status()["pid"] == 1
        (orphan,) = eventually(lambda: stub_node.notes("orphaned"))
        assert orphan["parent"] == 1, "orphans become children of the master"
        here = Path(f"/proc/{stub_node.pid}/root/proc/{orphan['orphan']}")
        assert is_alive_in(here)
        (stub_node.folder / "orphan-may-end").touch()
        eventually(lambda: not here.exists())
        assert stub_node.state() == "running"
        assert [slot["restarts"] for slot in stub_node.status()["slots"]] == [0, 0, 0]

        os.kill(stub_node.pid, signal.SIGTERM)
        assert stub_node.wait() == 0
        assert [fact["grace"] for fact in stub_node.notes("stopped", "video-1")] == [30.0]
    finally:
        assert not stub_node.clean_up()


def is_alive_in(process: Path) -> bool:
    return process.exists() and "\nState:\tZ" not in (process / "status").read_text()


@in_a_container
def test_a_stop_signal_before_process_1_handles_signals_is_not_lost(container: Container) -> None:
    stub_node = container.start()
    try:
        eventually(lambda: Path(f"/proc/{stub_node.pid}/cmdline").read_bytes().count(b"peerd.supervision.master"))
        os.kill(stub_node.pid, signal.SIGTERM)
        assert stub_node.wait() == 0
    finally:
        assert not stub_node.clean_up()
