"""A process is killed with SIGKILL before and after each step, and the disk is looked at afterwards.

The steps are not listed here: each operation is first run to its end, and what it marks is where it is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.digest import Chunking
from peerd.storage.disk.errors import ContentExists, ContentMissing, NotADisk, PartInUse
from peerd.storage.disk.folder import DiskFolder
from peerd.storage.disk.held_folder import Marker, mark_nothing
from peerd.storage.disk.identity import DiskIdentity, create_disk, read_disk_identity
from peerd.storage.disk.part_file import PartFile, publish_many
from peerd.storage.disk.small_parts import SmallParts
from peerd.testing import eventually
from tests.storage.disk.conftest import CLUSTER
from tests.storage.disk.contents import (
    CONTENT,
    NEIGHBOUR,
    SMALL_CHUNKS,
    digest_of,
    names_below,
    path_of,
    read,
    some_bytes,
    store,
)

DATA = some_bytes(1000)
OTHER = some_bytes(300, seed=1)
NAME = str(CONTENT)


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
    resumed = 0
    published: list[str] = []
    absent: list[str] = []
    for folder in killed_at_each_phase(prepare_empty, write_and_publish, tmp_path):
        with opened(folder) as disk:
            assert list(disk.unknown_entries()) == [], folder.name
            assert names_below(folder) <= {f"parts/{NAME}.part", f"contents/0191/b2c/{NAME}"}, folder.name
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
            assert names_below(folder) == {f"contents/0191/b2c/{NAME}"}, folder.name
    assert resumed >= 5
    assert absent[-1].endswith("before link")
    assert published[0].endswith("after link")
    assert absent < published


def test_a_killed_publisher_of_many_leaves_each_as_a_content_or_as_a_part(tmp_path: Path) -> None:
    wanted = {CONTENT: DATA, NEIGHBOUR: OTHER, ContentId(7 << 40): b""}

    def publish_all(folder: Path, marker: Marker) -> None:
        with opened(folder, marker) as disk:
            parts = []
            for content, data in wanted.items():
                try:
                    part = PartFile.open(disk, content, chunking=SMALL_CHUNKS)
                except ContentExists:
                    continue
                part.write(data[part.position :])
                parts.append((part, digest_of(data)))
            publish_many(parts)

    assert_each_is_whole_or_a_part(wanted, publish_all, tmp_path)


@pytest.mark.slow
def test_a_killed_publisher_of_small_contents_leaves_each_as_a_content_or_as_a_part(tmp_path: Path) -> None:
    wanted = {ContentId(CONTENT.number + number): some_bytes(50 + number, seed=number) for number in range(9)}

    def publish_all(folder: Path, marker: Marker) -> None:
        with opened(folder, marker) as disk, SmallParts(disk) as small:
            for content, data in wanted.items():
                with contextlib.suppress(ContentExists):
                    small.write(content, data, digest_of(data, Chunking()))
            small.publish()

    assert_each_is_whole_or_a_part(wanted, publish_all, tmp_path)


def assert_each_is_whole_or_a_part(
    wanted: dict[ContentId, bytes], publish_all: Callable[[Path, Marker], None], root: Path
) -> None:
    for folder in killed_at_each_phase(prepare_empty, publish_all, root):
        with opened(folder) as disk:
            assert list(disk.unknown_entries()) == [], folder.name
            for batch in disk.walk():
                assert all(read(disk, content) == wanted[content] for content, _ in batch), folder.name
        publish_all(folder, mark_nothing)
        with opened(folder) as disk:
            assert {content: read(disk, content) for content in wanted} == wanted, folder.name
            assert not any((folder / "parts").iterdir()), folder.name


def test_a_killed_remover_leaves_the_whole_content_or_none(tmp_path: Path) -> None:
    outcomes = set()

    def remove(folder: Path, marker: Marker) -> None:
        with opened(folder, marker) as disk:
            disk.remove(CONTENT)

    for folder in killed_at_each_phase(prepare_content, remove, tmp_path):
        with opened(folder) as disk:
            try:
                assert read(disk, CONTENT) == DATA
                disk.remove(CONTENT)
                outcomes.add("whole")
            except ContentMissing:
                outcomes.add("none")
            assert names_below(folder) == set()
            store(disk, CONTENT, DATA)
    assert outcomes == {"whole", "none"}


def test_a_killed_quarantine_leaves_the_content_at_one_of_its_places(tmp_path: Path) -> None:
    quarantined = f"quarantine/{NAME}.mismatch.1800000000"
    outcomes = set()

    def quarantine(folder: Path, marker: Marker) -> None:
        with opened(folder, marker) as disk:
            disk.quarantine(CONTENT, "mismatch", 1_800_000_000)

    for folder in killed_at_each_phase(prepare_content, quarantine, tmp_path):
        (name,) = names_below(folder)
        outcomes.add(name)
        assert (folder / name).read_bytes() == DATA
        with opened(folder) as disk:
            assert list(disk.unknown_entries()) == []
    assert outcomes == {quarantined, f"contents/0191/b2c/{NAME}"}


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


WRITER = """
import sys
from pathlib import Path
from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.folder import DiskFolder
from peerd.storage.disk.identity import read_disk_identity
from peerd.storage.disk.part_file import PartFile
path = Path(sys.argv[1])
with DiskFolder.open(path, read_disk_identity(path)) as disk, PartFile.open(disk, ContentId(int(sys.argv[2]))) as part:
    while True:
        part.write(bytes(range(256)) * 256)
"""


def test_a_part_is_locked_by_a_running_process_and_free_when_that_is_killed(
    disk: DiskFolder, disk_path: Path, identity: DiskIdentity
) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(disk_path), str(CONTENT.number)])
    part_path = disk_path / "parts" / f"{NAME}.part"
    try:
        eventually(lambda: part_path.exists() and part_path.stat().st_size > 1_000_000, timeout=60)
        with pytest.raises(PartInUse):
            PartFile.open(disk, CONTENT)
        with pytest.raises(PartInUse):
            disk.discard_part(CONTENT)
    finally:
        writer.kill()
        assert writer.wait(60) == -signal.SIGKILL
    with PartFile.open(disk, CONTENT, chunking=SMALL_CHUNKS) as part:
        data = bytes(range(256)) * (part.position // 256) + bytes(range(part.position % 256))
        assert part.position > 1_000_000
        part.publish(digest_of(data))
    assert path_of(disk_path, CONTENT).read_bytes() == data
