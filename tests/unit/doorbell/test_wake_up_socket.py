"""Ears: an agent tells a process directly; what cannot be told so is known at once."""

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
def ears(folder: Path) -> Iterator[WakeUpSender]:
    made = WakeUpSender(folder)
    made.open()
    yield made
    made.close()


@pytest.fixture
def heard() -> list[TasksAvailable]:
    return []


@pytest.fixture
async def ear(folder: Path, heard: list[TasksAvailable]) -> AsyncIterator[WakeUpSocket]:
    made = WakeUpSocket(folder, heard.append)
    made.open()
    yield made
    made.close()


async def test_a_ring_is_heard(ears: WakeUpSender, ear: WakeUpSocket, heard: list[TasksAvailable]) -> None:
    largest = TasksAvailable(tuple(f"{number:02}".ljust(64, "q") for number in range(MAX_QUEUES)))
    for ring in (TasksAvailable(), TasksAvailable(("video", "mail")), largest):
        assert ears.send(ME, ring)
    await eventually_async(lambda: heard == [TasksAvailable(), TasksAvailable(("video", "mail")), largest])


async def test_who_has_no_ear_is_known(folder: Path, ears: WakeUpSender, ear: WakeUpSocket) -> None:
    assert not ears.send(ME + 1, TasksAvailable())
    ear.close()
    assert not ears.send(ME, TasksAvailable())
    assert files_in(folder) == set()
    unopened = WakeUpSender(folder)
    assert not unopened.send(ME, TasksAvailable())


async def test_a_full_wake_up_socket_is_detected_and_drained(
    ears: WakeUpSender, ear: WakeUpSocket, heard: list[TasksAvailable]
) -> None:
    told = 0
    while ears.send(ME, TasksAvailable(("video",))):
        told += 1
        assert told < 100_000
    assert told >= 1
    await eventually_async(lambda: len(heard) == told)
    assert ears.send(ME, TasksAvailable(("mail",)))
    await eventually_async(lambda: heard[-1] == TasksAvailable(("mail",)))


async def test_garbage_does_no_harm(
    folder: Path, ears: WakeUpSender, ear: WakeUpSocket, heard: list[TasksAvailable], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        monkeypatch.chdir(folder)
        for garbage in (b"", b"\xff" * 100_000, b"[]", b'{"type":"work","queues":["no queue!"]}', b'{"type":"taken"}'):
            stranger.sendto(garbage, f"{SOCKET_PREFIX}{ME}")
    assert ears.send(ME, TasksAvailable(("video",)))
    await eventually_async(lambda: heard == [TasksAvailable(("video",))])


async def test_only_its_user_may_open_it(folder: Path, ear: WakeUpSocket) -> None:
    assert stat.S_IMODE((folder / f"{SOCKET_PREFIX}{ME}").stat().st_mode) == 0o600


async def test_a_later_process_of_the_same_number_takes_its_place(
    folder: Path, ears: WakeUpSender, heard: list[TasksAvailable]
) -> None:
    left = WakeUpSocket(folder, lambda _: pytest.fail("the earlier one was rung at"))
    left.open()
    later = WakeUpSocket(folder, heard.append)
    later.open()
    assert ears.send(ME, TasksAvailable())
    await eventually_async(lambda: heard == [TasksAvailable()])
    left.close()
    later.close()


def test_wake_up_sockets_of_killed_processes_are_removed(folder: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (folder / f"{SOCKET_PREFIX}{ended.pid}").touch()
    (folder / f"{SOCKET_PREFIX}{ME}").touch()
    (folder / "peerd.sock").touch()
    ears = WakeUpSender(folder)
    ears.open()
    ears.close()
    assert files_in(folder) == {f"{SOCKET_PREFIX}{ME}", "peerd.sock"}
