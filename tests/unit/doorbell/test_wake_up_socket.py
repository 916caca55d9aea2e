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

from peerd.domain.ring import MOST_QUEUES, Work
from peerd.doorbell.wake_up_socket import NAME, Ear, Ears
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
def ears(folder: Path) -> Iterator[Ears]:
    made = Ears(folder)
    made.open()
    yield made
    made.close()


@pytest.fixture
def heard() -> list[Work]:
    return []


@pytest.fixture
async def ear(folder: Path, heard: list[Work]) -> AsyncIterator[Ear]:
    made = Ear(folder, heard.append)
    made.open()
    yield made
    made.close()


async def test_a_ring_is_heard(ears: Ears, ear: Ear, heard: list[Work]) -> None:
    largest = Work(tuple(f"{number:02}".ljust(64, "q") for number in range(MOST_QUEUES)))
    for ring in (Work(), Work(("video", "mail")), largest):
        assert ears.tell(ME, ring)
    await eventually_async(lambda: heard == [Work(), Work(("video", "mail")), largest])


async def test_who_has_no_ear_is_known(folder: Path, ears: Ears, ear: Ear) -> None:
    assert not ears.tell(ME + 1, Work())
    ear.close()
    assert not ears.tell(ME, Work())
    assert files_in(folder) == set()
    unopened = Ears(folder)
    assert not unopened.tell(ME, Work())


async def test_a_full_ear_is_known_and_empties(ears: Ears, ear: Ear, heard: list[Work]) -> None:
    told = 0
    while ears.tell(ME, Work(("video",))):
        told += 1
        assert told < 100_000
    assert told >= 1
    await eventually_async(lambda: len(heard) == told)
    assert ears.tell(ME, Work(("mail",)))
    await eventually_async(lambda: heard[-1] == Work(("mail",)))


async def test_garbage_does_no_harm(
    folder: Path, ears: Ears, ear: Ear, heard: list[Work], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        monkeypatch.chdir(folder)
        for garbage in (b"", b"\xff" * 100_000, b"[]", b'{"type":"work","queues":["no queue!"]}', b'{"type":"taken"}'):
            stranger.sendto(garbage, f"{NAME}{ME}")
    assert ears.tell(ME, Work(("video",)))
    await eventually_async(lambda: heard == [Work(("video",))])


async def test_only_its_user_may_open_it(folder: Path, ear: Ear) -> None:
    assert stat.S_IMODE((folder / f"{NAME}{ME}").stat().st_mode) == 0o600


async def test_a_later_process_of_the_same_number_takes_its_place(folder: Path, ears: Ears, heard: list[Work]) -> None:
    left = Ear(folder, lambda _: pytest.fail("the earlier one was rung at"))
    left.open()
    later = Ear(folder, heard.append)
    later.open()
    assert ears.tell(ME, Work())
    await eventually_async(lambda: heard == [Work()])
    left.close()
    later.close()


def test_the_ears_of_killed_processes_are_swept_up(folder: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (folder / f"{NAME}{ended.pid}").touch()
    (folder / f"{NAME}{ME}").touch()
    (folder / "peerd.sock").touch()
    ears = Ears(folder)
    ears.open()
    ears.close()
    assert files_in(folder) == {f"{NAME}{ME}", "peerd.sock"}
