from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

from peerd.domain.ring import MAX_QUEUES, Ring, TasksAvailable, TaskScheduled
from peerd.doorbell.notifier import Notifier
from peerd.doorbell.wake_ups import SOCKET_PREFIX, WakeUpSender, WakeUpSocket
from peerd.store.connection.database import Database
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


class RecordingTransport:
    fails = closed = False

    def __init__(self) -> None:
        self.sent: list[list[Ring]] = []
        self.open = threading.Event()
        self.open.set()

    def send(self, rings: Sequence[Ring]) -> None:
        assert self.open.wait(60)
        if self.fails:
            raise OSError("no network")
        self.sent.append(list(rings))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def transport() -> RecordingTransport:
    return RecordingTransport()


@pytest.fixture
def notifier(tmp_path: Path, transport: RecordingTransport) -> Iterator[Notifier]:
    notifier = Notifier(Database(f"sqlite:///{tmp_path / 'peerd.sqlite'}"), open_transport=lambda: transport)
    yield notifier
    transport.open.set()
    notifier.close()


def test_rings_that_come_during_a_sending_become_one(notifier: Notifier, transport: RecordingTransport) -> None:
    transport.open.clear()
    notifier.ring(TasksAvailable(("first",)))
    for number in range(1000):
        notifier.ring(TasksAvailable((f"queue-{number % 3}",)), TaskScheduled(within=float(1000 - number)))
    assert not notifier.flush(0.0)
    transport.open.set()
    assert notifier.flush(60)
    everything = [ring for rings in transport.sent for ring in rings]
    assert len(everything) <= 4
    assert {queue for ring in everything if isinstance(ring, TasksAvailable) for queue in ring.queues} == {
        "first", "queue-0", "queue-1", "queue-2",
    }  # fmt: skip
    assert min(ring.within or 0 for ring in everything if isinstance(ring, TaskScheduled)) == 1.0


def test_a_ring_that_fails_raises_nothing_and_the_next_one_is_sent(
    notifier: Notifier, transport: RecordingTransport
) -> None:
    transport.fails = True
    notifier.ring(TasksAvailable())
    assert notifier.flush(60)
    assert notifier.last_error == "OSError: no network"
    transport.fails = False
    notifier.ring(TasksAvailable(("video",)))
    assert notifier.flush(60)
    assert transport.sent == [[TasksAvailable(("video",))]]
    assert "no network" not in str(notifier.last_error)
    notifier.ring(TasksAvailable(("last",)))
    notifier.close()
    notifier.ring(TasksAvailable(("late",)))
    assert (transport.sent[1:], transport.closed) == ([[TasksAvailable(("last",))]], True)


def test_a_forked_process_sends_its_own_rings(notifier: Notifier, transport: RecordingTransport) -> None:
    notifier.ring(TasksAvailable(("parent",)))
    assert notifier.flush(60)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        notifier.ring(TasksAvailable(("child",)))
        notifier.flush(60)
        os.write(writing, str(transport.sent[-1]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 1000).decode() == str([TasksAvailable(("child",))])
    os.close(reading)
    os.close(writing)


def test_without_a_secret_no_thread_is_started_and_an_unavailable_database_does_not_delay_callers() -> None:
    without_secret = Notifier(Database("mysql://user@127.0.0.1:9/nothing"))
    before = threading.active_count()
    without_secret.ring(TasksAvailable())
    assert without_secret.has_no_secret
    assert threading.active_count() == before
    connecting: set[int] = set()

    def note(*_: object) -> None:
        connecting.add(threading.get_ident())

    notifier = Notifier(Database("mysql://user@127.0.0.1:9/nothing"), "a secret of some length")
    sa.event.listen(sa.Engine, "do_connect", note)
    for _ in range(1000):
        notifier.ring(TasksAvailable())
    assert notifier.flush(60)
    assert "DatabaseUnavailable" in str(notifier.last_error)
    notifier.close()
    sa.event.remove(sa.Engine, "do_connect", note)
    assert len(connecting) == 1
    assert threading.get_ident() not in connecting
