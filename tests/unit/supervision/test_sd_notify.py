from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from peerd.supervision.sd_notify import EXTEND_INTERVAL, RETRY_DELAY, NodeCondition, SystemdNotifier
from tests.support.rows import rows

STARTING = NodeCondition("starting", "starting: 0 of 2 processes run")
RUNNING = NodeCondition("running", "running: 2 of 2 processes run")
RELOADING = NodeCondition("running", "reloading: 2 of 2 processes run", reloading=True)
STOPPING = NodeCondition("stopping", "stopping: 1 of 2 processes run")


class FakeSystemd:
    def __init__(self, address: str) -> None:
        self.end = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.end.bind("\0" + address[1:] if address.startswith("@") else address)

    def received(self) -> list[list[str]]:
        found = []
        while True:
            try:
                found.append(self.end.recv(4096).decode().splitlines())
            except BlockingIOError:
                return found


@pytest.fixture(params=["path", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "notify") if request.param == "path" else f"@peerd-test-{tmp_path}"


@pytest.fixture
def fake_systemd(address: str) -> Iterator[FakeSystemd]:
    made = FakeSystemd(address)
    yield made
    made.end.close()


def systemd(address: str, **variables: str) -> SystemdNotifier:
    return SystemdNotifier.from_environment({"NOTIFY_SOCKET": address, **variables}, pid=7)


def test_a_node_reports_each_change_from_start_to_stop_once(fake_systemd: FakeSystemd, address: str) -> None:
    node = systemd(address)
    for now, condition in enumerate([STARTING, STARTING, RUNNING, RUNNING, RELOADING, RUNNING, STOPPING], start=100):
        node.notify(condition, float(now))
    extend = "EXTEND_TIMEOUT_USEC=30000000"
    assert fake_systemd.received() == [
        [f"STATUS={STARTING.text}", extend], ["READY=1", f"STATUS={RUNNING.text}"],
        ["RELOADING=1", "MONOTONIC_USEC=104000000", f"STATUS={RELOADING.text}", extend],
        ["READY=1", f"STATUS={RUNNING.text}"], ["STOPPING=1", f"STATUS={STOPPING.text}", extend],
    ]  # fmt: skip
    assert node.due_at == 106 + EXTEND_INTERVAL
    node.notify(STOPPING, 106 + EXTEND_INTERVAL)
    assert fake_systemd.received() == [[extend]], "a long drain is given more time, again and again"
    node.close()


def test_the_watchdog_is_fed_twice_in_its_time_while_the_node_runs(fake_systemd: FakeSystemd, address: str) -> None:
    node = systemd(address, WATCHDOG_USEC="20000000", WATCHDOG_PID="7")
    node.notify(RUNNING, 100.0)
    assert fake_systemd.received() == [["READY=1", f"STATUS={RUNNING.text}", "WATCHDOG=1"]]
    assert node.due_at == 110.0
    node.notify(RUNNING, 109.0)
    assert fake_systemd.received() == []
    lost = NodeCondition("running", RUNNING.text, healthy=False)
    node.notify(lost, 110.0)
    assert fake_systemd.received() == []
    assert node.due_at == 110.0 + RETRY_DELAY, "it is not sent again in a busy loop"
    node.notify(RUNNING, 111.0)
    assert fake_systemd.received() == [["WATCHDOG=1"]]
    node.close()


@rows("variables", [{}, {"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "8"}, {"WATCHDOG_USEC": "soon"}])
def test_a_watchdog_of_another_process_is_not_fed(
    fake_systemd: FakeSystemd, address: str, variables: dict[str, str]
) -> None:
    environment = {"NOTIFY_SOCKET": address, "HOME": "/"} | variables
    node = SystemdNotifier.from_environment(environment, pid=7)
    assert environment == {"HOME": "/"}, "the variables of systemd are not inherited"
    node.notify(RUNNING, 100.0)
    assert fake_systemd.received() == [["READY=1", f"STATUS={RUNNING.text}"]]
    assert node.due_at is None
    node.close()


def test_a_missing_systemd_socket_is_no_error_and_a_failed_notification_is_sent_again(tmp_path: Path) -> None:
    for nowhere in ("", "/nowhere/notify", "vsock:2:1234"):
        node = systemd(nowhere, WATCHDOG_USEC="20000000")
        node.notify(RUNNING, 100.0)
        node.notify(STOPPING, 101.0)
        node.close()
    node = systemd(str(tmp_path / "notify"))
    node.notify(RUNNING, 100.0)
    late = FakeSystemd(str(tmp_path / "notify"))
    node.notify(RUNNING, 101.0)
    assert late.received() == [["READY=1", f"STATUS={RUNNING.text}"]]
    late.end.close()
    node.close()
