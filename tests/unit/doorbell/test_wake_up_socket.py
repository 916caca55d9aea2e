from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from peerd.domain.ring import MAX_QUEUES, TasksAvailable
from peerd.doorbell.wake_up_socket import SOCKET_PREFIX, WakeUpSender, WakeUpSocket
from peerd.testing import eventually_async

ME = os.getpid()


def files_in(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    long = tmp_path / ("a-folder-whose-path-is-longer-than-the-address-of-a-socket-may-be-" * 2)
    long.mkdir()
    return long


@pytest.fixture
def sender(folder: Path) -> Iterator[WakeUpSender]:
    opened = WakeUpSender(folder)
    opened.open()
    yield opened
    opened.close()


@pytest.fixture
def received() -> list[TasksAvailable]:
    return []


@pytest.fixture
async def wake_up_socket(folder: Path, received: list[TasksAvailable]) -> AsyncIterator[WakeUpSocket]:
    opened = WakeUpSocket(folder, received.append)
    opened.open()
    yield opened
    opened.close()


async def test_a_ring_is_received_and_what_is_none_is_ignored(
    folder: Path,
    sender: WakeUpSender,
    wake_up_socket: WakeUpSocket,
    received: list[TasksAvailable],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other_socket:
        monkeypatch.chdir(folder)
        for invalid in (b"", b"\xff" * 100_000, b"[]", b'{"type":"work","queues":["no queue!"]}', b'{"type":"taken"}'):
            other_socket.sendto(invalid, f"{SOCKET_PREFIX}{ME}")
    largest = TasksAvailable(tuple(f"{number:02}".ljust(64, "q") for number in range(MAX_QUEUES)))
    for ring in (TasksAvailable(), TasksAvailable(("video", "mail")), largest):
        assert sender.send(ME, ring)
    await eventually_async(lambda: received == [TasksAvailable(), TasksAvailable(("video", "mail")), largest])


async def test_sending_without_a_socket_fails_at_once(
    folder: Path, sender: WakeUpSender, wake_up_socket: WakeUpSocket
) -> None:
    assert stat.S_IMODE((folder / f"{SOCKET_PREFIX}{ME}").stat().st_mode) == 0o600, "only its user may open it"
    assert not sender.send(ME + 1, TasksAvailable())
    wake_up_socket.close()
    assert not sender.send(ME, TasksAvailable())
    assert files_in(folder) == set()
    unopened = WakeUpSender(folder)
    assert not unopened.send(ME, TasksAvailable())


async def test_a_full_wake_up_socket_is_detected_and_drained(
    sender: WakeUpSender, wake_up_socket: WakeUpSocket, received: list[TasksAvailable]
) -> None:
    sent = 0
    while sender.send(ME, TasksAvailable(("video",))):
        sent += 1
        assert sent < 100_000
    assert sent >= 1
    await eventually_async(lambda: len(received) == sent)
    assert sender.send(ME, TasksAvailable(("mail",)))
    await eventually_async(lambda: received[-1] == TasksAvailable(("mail",)))


async def test_a_later_process_replaces_the_socket(
    folder: Path, sender: WakeUpSender, wake_up_socket: WakeUpSocket
) -> None:
    received: list[TasksAvailable] = []
    later = WakeUpSocket(folder, received.append)
    later.open()
    assert sender.send(ME, TasksAvailable())
    await eventually_async(lambda: received == [TasksAvailable()])
    later.close()


def test_wake_up_sockets_of_killed_processes_are_removed(folder: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (folder / f"{SOCKET_PREFIX}{ended.pid}").touch()
    (folder / f"{SOCKET_PREFIX}{ME}").touch()
    (folder / "peerd.sock").touch()
    sender = WakeUpSender(folder)
    sender.open()
    sender.close()
    assert files_in(folder) == {f"{SOCKET_PREFIX}{ME}", "peerd.sock"}
