from __future__ import annotations

import contextlib
import os
from functools import partial
from pathlib import Path

import pytest

from peerd.storage.disk.errors import ContentExists, ContentMissing
from peerd.storage.disk.folder import DiskFolder
from peerd.storage.disk.part_file import PartFile
from tests.storage.disk.contents import CONTENT, NEIGHBOUR, names_below, path_of, read, store


def test_a_missing_content_is_missing_for_each_operation(disk: DiskFolder) -> None:
    quarantine = partial(disk.quarantine, reason="mismatch", now=0)
    for _ in range(2):
        for operation in (disk.open_content, disk.size, disk.remove, quarantine):
            with pytest.raises(ContentMissing) as missing:
                operation(CONTENT)
            assert missing.value.content == str(CONTENT)
        with contextlib.suppress(ContentExists):
            store(disk, NEIGHBOUR, b"of the same folder")


def test_a_folder_is_removed_with_its_last_content(disk: DiskFolder, disk_path: Path) -> None:
    store(disk, CONTENT, b"one")
    store(disk, NEIGHBOUR, b"two")
    disk.remove(CONTENT)
    assert read(disk, NEIGHBOUR) == b"two"
    disk.remove(NEIGHBOUR)
    assert [path.name for path in disk_path.rglob("contents/*")] == ["0191"]
    assert list((disk_path / "contents" / "0191").iterdir()) == []
    store(disk, CONTENT, b"again")
    assert read(disk, CONTENT) == b"again"


def test_a_bad_content_is_moved_and_overwrites_no_earlier_one(disk: DiskFolder, disk_path: Path) -> None:
    names = []
    for data in (b"first", b"second"):
        store(disk, CONTENT, data)
        names.append(disk.quarantine(CONTENT, "mismatch", 1_800_000_000.7))
        with pytest.raises(ContentMissing):
            disk.size(CONTENT)
    assert names == [f"{CONTENT}.mismatch.1800000000", f"{CONTENT}.mismatch.1800000001"]
    assert [(disk_path / "quarantine" / name).read_bytes() for name in names] == [b"first", b"second"]
    assert list(disk.unknown_entries()) == []
    store(disk, CONTENT, b"bad")
    for reason in ("", "a/b", "..", "Bad", "x" * 33, "mismatch\n"):
        with pytest.raises(ValueError, match="no reason"):
            disk.quarantine(CONTENT, reason, 0)
    with open(disk.open_content(CONTENT)) as bad:  # noqa: PTH123 - a descriptor
        disk.remove(CONTENT)
        store(disk, CONTENT, b"good")
        with pytest.raises(ContentMissing):
            disk.quarantine(CONTENT, "mismatch", 0, fd=bad.fileno())
    assert read(disk, CONTENT) == b"good"
    with open(disk.open_content(CONTENT)) as same:  # noqa: PTH123
        disk.quarantine(CONTENT, "mismatch", 0, fd=same.fileno())


def test_old_parts_are_listed_and_discarded(disk: DiskFolder, disk_path: Path) -> None:
    for content in (NEIGHBOUR, CONTENT):
        with PartFile.open(disk, content) as part:
            part.write(b"some")
    os.utime(disk_path / "parts" / f"{CONTENT}.part", (1000, 1000))
    assert [(part.content, part.size, part.changed_at) for part in disk.old_parts(2000)] == [(CONTENT, 4, 1000)]
    assert [part.content for part in disk.old_parts(float("inf"))] == [CONTENT, NEIGHBOUR]
    disk.discard_part(CONTENT)
    disk.discard_part(CONTENT)
    assert names_below(disk_path) == {f"parts/{NEIGHBOUR}.part"}


def test_discarding_the_part_of_a_killed_publisher_makes_its_content_durable(disk_path: Path, disk: DiskFolder) -> None:
    with PartFile.open(disk, CONTENT) as part:
        part.write(b"some")
    path = path_of(disk_path, CONTENT)
    path.parent.mkdir(parents=True)
    path.hardlink_to(disk_path / "parts" / f"{CONTENT}.part")
    phases: list[str] = []
    with DiskFolder.open(disk_path, disk.identity, at=phases.append) as again:
        again.discard_part(CONTENT)
    assert phases.count("after fsync folder") == 3
    assert phases.index("before unlink part") > phases.index("after fsync folder")
    assert read(disk, CONTENT) == b"some"


def test_a_closed_disk_is_not_a_disk_that_failed(disk: DiskFolder) -> None:
    disk.close()
    disk.close()
    for operation in (disk.check, disk.usage, lambda: disk.size(CONTENT), lambda: PartFile.open(disk, CONTENT)):
        with pytest.raises(ValueError, match="is closed"):
            operation()


def test_closing_a_disk_closes_all_its_descriptors(disk_path: Path, disk: DiskFolder) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with DiskFolder.open(disk_path, disk.identity) as again:
            store(again, CONTENT, b"some")
            again.check()
            list(again.walk())
            list(again.unknown_entries())
            again.quarantine(CONTENT, "test", 0)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
