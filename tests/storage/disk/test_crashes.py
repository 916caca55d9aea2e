"""A process is killed with SIGKILL before and after each step, and the disk is looked at afterwards.

The steps are not listed here: each operation is first run to its end, and what it marks is where it is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.digest import Chunking
from peerd.storage.disk.errors import ContentExists, ContentMissing, NotADisk
from peerd.storage.disk.folder import DiskFolder
from peerd.storage.disk.folder_disk import SmallParts
from peerd.storage.disk.held_folder import Marker, mark_nothing
from peerd.storage.disk.identity import create_disk, read_disk_identity
from peerd.storage.disk.part_file import PartFile, publish_many
from tests.storage.disk.conftest import CLUSTER
from tests.storage.disk.contents import (
    CONTENT,
    NEIGHBOUR,
    SMALL_CHUNKS,
    digest_of,
    names_below,
    read,
    some_bytes,
    store,
)

DATA = some_bytes(1000)
NAME = str(CONTENT)
CONTENT_NAME = f"contents/0191/b2c/{NAME}"


def killed_at_each_phase(
    prepare: Callable[[Path], None], operate: Callable[[Path, Marker], None], root: Path
) -> list[Path]:
    """Folders, one for each phase: prepared, and left as a process did that was killed there."""
    reference = root / "reference"
    reference.mkdir(parents=True)
    prepare(reference)
    phases: list[str] = []
    operate(reference, phases.append)
    assert phases
    left = []
    for number, phase in enumerate(phases):
        folder = root / f"{number:03} {phase}"
        folder.mkdir()
        prepare(folder)
        assert _run_and_kill(lambda marker, folder=folder: operate(folder, marker), number) == signal.SIGKILL  # type: ignore[misc]
        left.append(folder)
    return left


def _run_and_kill(operate: Callable[[Marker], None], number: int) -> int:
    """The signal that ended a forked process, which kills itself at its n-th phase."""
    pid = os.fork()
    if pid == 0:
        try:
            phases = count()

            def kill_at_phase(phase: str) -> None:
                if next(phases) == number:
                    os.kill(os.getpid(), signal.SIGKILL)

            operate(kill_at_phase)
        finally:
            os._exit(1)
    return os.WTERMSIG(os.waitpid(pid, 0)[1])


def opened(folder: Path, marker: Marker = mark_nothing) -> DiskFolder:
    return DiskFolder.open(folder, read_disk_identity(folder), at=marker)


def prepare_empty(folder: Path) -> None:
    create_disk(folder, CLUSTER)


def prepare_content(folder: Path) -> None:
    prepare_empty(folder)
    with opened(folder) as disk:
        store(disk, CONTENT, DATA)


def write_and_publish(folder: Path, marker: Marker) -> None:
    with opened(folder, marker) as disk, PartFile.open(disk, CONTENT, size=len(DATA), chunking=SMALL_CHUNKS) as part:
        while part.position < len(DATA):
            part.write(DATA[part.position : part.position + 400])
        part.publish(digest_of(DATA))


def test_a_killed_writer_leaves_no_content_or_the_whole_and_a_part_that_is_resumed(tmp_path: Path) -> None:
    resumed, published, absent = 0, list[str](), list[str]()
    for folder in killed_at_each_phase(prepare_empty, write_and_publish, tmp_path):
        with opened(folder) as disk:
            assert list(disk.unknown_entries()) == [], folder.name
            assert names_below(folder) <= {f"parts/{NAME}.part", CONTENT_NAME}, folder.name
            try:
                assert read(disk, CONTENT) == DATA, folder.name
                published.append(folder.name)
            except ContentMissing:
                absent.append(folder.name)
        try:
            with opened(folder) as disk, PartFile.open(disk, CONTENT) as part:
                resumed += part.position > 0
            write_and_publish(folder, mark_nothing)
        except ContentExists:
            pass
        with opened(folder) as disk:
            assert read(disk, CONTENT) == DATA, folder.name
            assert names_below(folder) == {CONTENT_NAME}, folder.name
    assert resumed >= 5
    assert absent[-1].endswith("before link")
    assert published[0].endswith("after link")
    assert absent < published


SOME = {CONTENT: DATA, NEIGHBOUR: some_bytes(300, seed=1), ContentId(7 << 40): b""}
MANY_SMALL = {ContentId(CONTENT.number + number): some_bytes(50 + number, seed=number) for number in range(9)}


def publish_some(folder: Path, marker: Marker) -> None:
    with opened(folder, marker) as disk:
        parts = []
        for content, data in SOME.items():
            with contextlib.suppress(ContentExists):
                part = PartFile.open(disk, content, chunking=SMALL_CHUNKS)
                part.write(data[part.position :])
                parts.append((part, digest_of(data)))
        publish_many(parts)


def publish_small(folder: Path, marker: Marker) -> None:
    with opened(folder, marker) as disk, SmallParts(disk) as small:
        for content, data in MANY_SMALL.items():
            with contextlib.suppress(ContentExists):
                small.write(content, data, digest_of(data, Chunking()))
        small.publish()


@pytest.mark.parametrize(
    ("wanted", "publish_all"),
    [(SOME, publish_some), pytest.param(MANY_SMALL, publish_small, marks=pytest.mark.slow)],
    ids=["many", "small"],
)
def test_a_killed_publisher_of_many_leaves_each_as_a_content_or_as_a_part(
    tmp_path: Path, wanted: dict[ContentId, bytes], publish_all: Callable[[Path, Marker], None]
) -> None:
    for folder in killed_at_each_phase(prepare_empty, publish_all, tmp_path):
        with opened(folder) as disk:
            assert list(disk.unknown_entries()) == [], folder.name
            for batch in disk.walk():
                assert all(read(disk, content) == wanted[content] for content, _ in batch), folder.name
        publish_all(folder, mark_nothing)
        with opened(folder) as disk:
            assert {content: read(disk, content) for content in wanted} == wanted, folder.name
            assert not any((folder / "parts").iterdir()), folder.name


@pytest.mark.parametrize("quarantined", ["", f"quarantine/{NAME}.mismatch.1800000000"])
def test_a_killed_removal_or_quarantine_leaves_the_whole_content_at_one_place_or_none(
    tmp_path: Path, quarantined: str
) -> None:
    def put_away(folder: Path, marker: Marker) -> None:
        with opened(folder, marker) as disk:
            disk.quarantine(CONTENT, "mismatch", 1_800_000_000) if quarantined else disk.remove(CONTENT)

    outcomes = set()
    for folder in killed_at_each_phase(prepare_content, put_away, tmp_path):
        left = names_below(folder)
        outcomes.add("".join(left))
        assert [(folder / name).read_bytes() for name in left] == [DATA] * len(left)
        with opened(folder) as disk:
            assert list(disk.unknown_entries()) == []
            if left != {CONTENT_NAME}:
                store(disk, CONTENT, DATA)
    assert outcomes == {quarantined, CONTENT_NAME}


def test_a_killed_creation_can_be_repeated_and_never_leaves_half_a_disk(tmp_path: Path) -> None:
    complete = incomplete = 0

    def create(folder: Path, marker: Marker) -> None:
        create_disk(folder, CLUSTER, at=marker)

    for folder in killed_at_each_phase(lambda folder: None, create, tmp_path):
        try:
            identity = read_disk_identity(folder)
            complete += 1
        except NotADisk:
            identity = create_disk(folder, CLUSTER)
            incomplete += 1
        with DiskFolder.open(folder, identity) as disk:
            assert list(disk.unknown_entries()) == [], folder.name
            store(disk, CONTENT, DATA)
    assert complete >= 3
    assert incomplete >= 8
