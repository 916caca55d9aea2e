"""A node under systemd, which is played by a socket; and as the first process of a container."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from peerd.supervision.control import control_client
from peerd.supervision.processes.health import LOST_AFTER
from tests.supervision.conftest import Nodes
from tests.supervision.nodes import ToyNode, eventually
from tests.unit.supervision.test_sd_notify import Manager

AGENT = {"name": "agent", "role": "agent"}
WORKER = {"name": "video-1"}


class Heard:
    """All that systemd has heard so far."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._lines: list[str] = []

    def lines(self) -> list[str]:
        self._lines += [line for datagram in self._manager.heard() for line in datagram]
        return self._lines


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    address = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    manager = Manager(address)
    yield Heard(manager)
    manager.end.close()


def test_systemd_hears_of_a_start_a_reload_a_stop_and_a_living_loop(node: Nodes, heard: Heard) -> None:
    toys = node(AGENT, {**WORKER, "start": ["sleep 0.5"], "work": 0.3}).start()
    eventually(lambda: "STATUS=starting: 1 of 2 processes run; video-1 STARTING" in heard.lines())
    assert "READY=1" not in heard.lines()
    eventually(lambda: "READY=1" in heard.lines())
    assert "STATUS=running: 2 of 2 processes run" in heard.lines()
    for process in (toys.pid, *[int(slot["pid"]) for slot in toys.status()["slots"]]):
        names = {entry.partition(b"=")[0] for entry in Path(f"/proc/{process}/environ").read_bytes().split(b"\0")}
        if process != toys.pid:
            assert not names & {b"NOTIFY_SOCKET", b"WATCHDOG_USEC"}
    fed = heard.lines().count("WATCHDOG=1")
    eventually(lambda: heard.lines().count("WATCHDOG=1") > fed + 2, message="the watchdog is fed")

    control_client.ask(toys.run_directory, {"command": "reload", "kinds": ["video"]})
    eventually(lambda: "RELOADING=1" in heard.lines() and heard.lines().count("READY=1") == 2)
    reloading = heard.lines().index("RELOADING=1")
    assert heard.lines()[reloading + 1].startswith("MONOTONIC_USEC=")

    assert toys.stop() == 0
    assert "STOPPING=1" in heard.lines()
    assert "EXTEND_TIMEOUT_USEC=30000000" in heard.lines()[heard.lines().index("STOPPING=1") :]


def test_a_frozen_master_does_not_feed_the_watchdog(node: Nodes, heard: Heard) -> None:
    toys = node(AGENT).up()
    toys.signal(signal.SIGSTOP)
    eventually(lambda: "\nState:\tT" in Path(f"/proc/{toys.pid}/status").read_text())
    fed = heard.lines().count("WATCHDOG=1")
    with contextlib.suppress(subprocess.TimeoutExpired):
        assert toys.master
        toys.master.wait(1.0)
    assert heard.lines().count("WATCHDOG=1") == fed
    toys.signal(signal.SIGCONT)
    eventually(lambda: heard.lines().count("WATCHDOG=1") > fed)


@pytest.mark.slow
def test_a_node_whose_agent_fails_again_and_again_has_systemd_start_it_anew(node: Nodes, heard: Heard) -> None:
    """The master itself never gives up: what it does is to let the watchdog starve."""
    toys = node({**AGENT, "entry": "stub_services:never_again", "backoff_maximum": 0.1}, WORKER).up()
    worker = toys.slot("video-1")["pid"]
    toys.kill("agent")
    eventually(lambda: toys.slot("agent")["restarts"] > LOST_AFTER, timeout=60.0, message="it is tried again and again")
    fed = heard.lines().count("WATCHDOG=1")
    eventually(lambda: toys.slot("agent")["restarts"] > LOST_AFTER + 3, message="it is tried all the same")
    assert heard.lines().count("WATCHDOG=1") == fed
    assert (toys.status()["state"], toys.slot("video-1")["pid"]) == ("running", worker)
    control_client.stop(toys.run_directory, fast=True, timeout=20)


def may_make_a_pid_namespace() -> bool:
    tried = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, check=False, timeout=10
    )
    return tried.returncode == 0


in_a_container = pytest.mark.skipif(
    not may_make_a_pid_namespace(), reason="unshare --pid is not allowed here: the master cannot be process 1"
)


class Container(ToyNode):
    """A node whose master is process 1 of a namespace of its own."""

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


@in_a_container
@pytest.mark.parametrize("how", [signal.SIGTERM, "control"])
def test_as_process_1_it_reaps_orphans_and_stops_in_good_order(container: Container, how: signal.Signals | str) -> None:
    toys = container.up()
    try:
        assert toys.status()["pid"] == 1
        (orphan,) = eventually(lambda: toys.facts("orphaned"))
        assert orphan["parent"] == 1, "whoever loses its parent is the master's"
        here = Path(f"/proc/{toys.pid}/root/proc/{orphan['orphan']}")
        assert is_alive_in(here)
        (toys.folder / "orphan-may-end").touch()
        eventually(lambda: not here.exists(), message="it has ended, and is no zombie")
        assert toys.state() == "running"
        assert [slot["restarts"] for slot in toys.status()["slots"]] == [0, 0, 0]

        if isinstance(how, signal.Signals):
            os.kill(toys.pid, how)
        else:
            control_client.stop(toys.run_directory, timeout=20)
        assert toys.wait() == 0
        assert [fact["grace"] for fact in toys.facts("stopped", "video-1")] == [30.0]
    finally:
        assert not toys.clean_up()


def is_alive_in(process: Path) -> bool:
    return process.exists() and "\nState:\tZ" not in (process / "status").read_text()


@in_a_container
def test_a_stop_that_comes_before_process_1_hears_it_is_not_lost(container: Container) -> None:
    toys = container.start()
    try:
        eventually(lambda: Path(f"/proc/{toys.pid}/cmdline").read_bytes().count(b"peerd.supervision.master"))
        os.kill(toys.pid, signal.SIGTERM)
        assert toys.wait() == 0
    finally:
        assert not toys.clean_up()
