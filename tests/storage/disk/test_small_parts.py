"""Small contents that are written and published together."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from peerd.storage.disk import linux_calls, part_file
from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.digest import digest_of
from peerd.storage.disk.errors import ContentExists, ContentMismatch, DiskFailed, PartInUse
from peerd.storage.disk.folder import DiskFolder
from peerd.storage.disk.folder_disk import FolderDisk, SmallParts
from peerd.storage.disk.part_file import PartFile
from tests.storage.disk.contents import CONTENT, NEIGHBOUR, names_below, path_of, read, some_bytes, store

FAR = ContentId(7 << 40)
"""In another folder than the others."""
NEIGHBOUR2 = ContentId(CONTENT.number + 50)
CONTENTS = [FAR, *(ContentId(CONTENT.number + number) for number in range(12))]


def data_of(content: ContentId) -> bytes:
    return some_bytes(200, seed=content.number % 1000)


def write(small: SmallParts, content: ContentId) -> None:
    data = data_of(content)
    small.write(content, data, digest_of(data))


def test_what_is_published_together_is_what_was_written(disk: DiskFolder, disk_path: Path) -> None:
    store(disk, NEIGHBOUR2, b"it was there")
    with SmallParts(disk) as small:
        for content in CONTENTS:
            write(small, content)
        for wrong in (b"other", b"expectedx", b"expecte"):
            with pytest.raises(ContentMismatch):
                small.write(ContentId(8), wrong, digest_of(b"expected"))
        with pytest.raises(ContentExists):
            write(small, NEIGHBOUR2)
        small.write(ContentId(9), b"", digest_of(b""))
        assert [content for batch in disk.walk() for content, _ in batch] == [NEIGHBOUR2]
        assert small.publish() == [*CONTENTS, ContentId(9)]
        assert small.publish() == []
    assert all(read(disk, content) == data_of(content) for content in CONTENTS)
    assert (read(disk, ContentId(9)), read(disk, NEIGHBOUR2)) == (b"", b"it was there")
    assert not any((disk_path / "parts").iterdir())


def test_an_earlier_part_is_removed_and_one_in_use_is_left(disk: DiskFolder) -> None:
    with PartFile.open(disk, CONTENT) as part:
        part.write(b"of an earlier try")
    with PartFile.open(disk, NEIGHBOUR) as other, SmallParts(disk) as small:
        other.write(b"in use")
        write(small, CONTENT)
        with pytest.raises(PartInUse):
            write(small, NEIGHBOUR)
        with pytest.raises(PartInUse):
            disk.discard_part(CONTENT)
        assert small.publish() == [CONTENT]
        other.publish()
    assert (read(disk, CONTENT), read(disk, NEIGHBOUR)) == (data_of(CONTENT), b"in use")


def test_a_part_that_is_removed_before_it_is_locked_is_made_anew(disk: DiskFolder, disk_path: Path) -> None:
    """A removal locks a new part first, ends, and removes its name; then a lock of it would exclude no one."""
    phases: list[str] = []

    def remove_once(phase: str) -> None:
        phases.append(phase)
        if phase == "after open part" and phases.count(phase) == 1:
            disk.discard_part(CONTENT)

    with DiskFolder.open(disk_path, disk.identity, at=remove_once) as again, SmallParts(again) as small:
        write(small, CONTENT)
        assert phases.count("after open part") == 2
        with pytest.raises(PartInUse), disk.without_writer(CONTENT):
            pass
        small.publish()
    assert read(disk, CONTENT) == data_of(CONTENT)


def test_a_folder_that_is_removed_meanwhile_is_made_again(disk: DiskFolder, disk_path: Path) -> None:
    store(disk, ContentId(CONTENT.number + 100), b"the last one")
    with SmallParts(disk) as small:
        write(small, CONTENT)
        disk.remove(ContentId(CONTENT.number + 100))
        assert not path_of(disk_path, CONTENT).parent.exists()
        store(disk, ContentId(CONTENT.number + 100), b"in a new folder")
        write(small, NEIGHBOUR)
        small.publish()
    assert (read(disk, CONTENT), read(disk, NEIGHBOUR)) == (data_of(CONTENT), data_of(NEIGHBOUR))


def test_after_a_sync_that_failed_nothing_is_left(
    disk: DiskFolder, disk_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(part_file, "can_sync_file_system", lambda _: True)
    monkeypatch.setattr(part_file, "sync_file_system", fail)
    with SmallParts(disk) as small:
        for content in CONTENTS:
            write(small, content)
        with pytest.raises(DiskFailed, match="sync file system"):
            small.publish()
    assert names_below(disk_path) == set()


def test_a_sync_is_relied_upon_for_known_file_systems(disk_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fd, proc = os.open(disk_path, os.O_RDONLY), os.open("/proc", os.O_RDONLY)
    try:
        assert not linux_calls.can_sync_file_system(proc)
        monkeypatch.setattr(linux_calls, "_SYNCED", {linux_calls._file_system_type(fd)})
        for release, is_reliable in {"6.1.0-18-amd64": True, "5.17": True, "5.16.9": False, "5.4-x": False}.items():
            linux_calls._sync_reports_errors.cache_clear()
            monkeypatch.setattr(os, "uname", lambda release=release: os.uname_result(("", "", release, "", "")))
            assert linux_calls.can_sync_file_system(fd) is is_reliable, release
    finally:
        linux_calls._sync_reports_errors.cache_clear()
        os.close(fd)
        os.close(proc)


def test_small_contents_are_read_together(disk: DiskFolder, disk_path: Path) -> None:
    for content in CONTENTS:
        store(disk, content, data_of(content))
    path_of(disk_path, CONTENTS[3]).unlink()
    path_of(disk_path, CONTENTS[3]).symlink_to(path_of(disk_path, CONTENTS[4]))
    path_of(disk_path, CONTENTS[5]).write_bytes(bytes(201))
    found = FolderDisk(disk).read_small([*CONTENTS, ContentId(9)], 200)
    left_out = {CONTENTS[3], CONTENTS[5]}
    assert found == {content: data_of(content) for content in CONTENTS if content not in left_out}
