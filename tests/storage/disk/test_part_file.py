from __future__ import annotations

import errno
import os
import resource
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peerd.storage.disk import part_file
from peerd.storage.disk.content_id import ContentId, new_content_id
from peerd.storage.disk.digest import ContentReading
from peerd.storage.disk.errors import (
    ContentExists,
    ContentMismatch,
    DescriptorsExhausted,
    DigestRequired,
    DiskFailed,
    HashingStopped,
    PartInUse,
)
from peerd.storage.disk.folder import DiskFolder
from peerd.storage.disk.identity import create_disk
from peerd.storage.disk.part_file import PartFile, publish_many
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

DATA = some_bytes(500)


def linked_by_a_killed_writer(disk: DiskFolder, disk_path: Path) -> Path:
    """Leave a part that is a content already; the path of this."""
    begin(disk, DATA)
    path = path_of(disk_path, CONTENT)
    path.parent.mkdir(parents=True)
    path.hardlink_to(disk_path / "parts" / f"{CONTENT}.part")
    return path


def begin(disk: DiskFolder, data: bytes, content: ContentId = CONTENT) -> None:
    """Leave a part with these bytes."""
    with PartFile.open(disk, content, chunking=SMALL_CHUNKS) as part:
        part.write(data)


@given(
    announced=st.booleans(),
    data=st.binary(max_size=2000),
    lives=st.lists(st.lists(st.integers(0, 700), max_size=4), min_size=1, max_size=4),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_writes_of_any_size_and_any_resumes_have_the_digest_of_one_write(
    disk: DiskFolder, *, announced: bool, data: bytes, lives: list[list[int]]
) -> None:
    content = new_content_id(1_700_000_000)
    size = len(data) if announced else None
    for life in [*lives, [len(data)]]:
        with PartFile.open(disk, content, size=size, chunking=SMALL_CHUNKS) as part:
            for piece in life:
                part.write(data[part.position : part.position + piece])
    with PartFile.open(disk, content, size=size, chunking=SMALL_CHUNKS) as part:
        assert part.position == len(data)
        assert part.publish(digest_of(data)) == digest_of(data)
    assert read(disk, content) == data


def test_a_disk_begins_with_large_contents_before_their_end(disk: DiskFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[int, int]] = []
    monkeypatch.setattr(part_file, "start_writing", lambda _, start, length: begun.append((start, length)))
    mebibyte = 1024 * 1024
    with PartFile.open(disk, CONTENT) as part:
        for _ in range(5):
            part.write(bytes(5 * mebibyte))
        part.publish()
    assert begun == [(0, 10 * mebibyte), (10 * mebibyte, 10 * mebibyte)]


def test_of_parts_none_is_published_if_one_is_not_as_expected(disk: DiskFolder, disk_path: Path) -> None:
    with PartFile.open(disk, CONTENT) as good, PartFile.open(disk, NEIGHBOUR, chunking=SMALL_CHUNKS) as bad:
        good.write(b"good")
        bad.write(DATA[:130] + b"x" + DATA[131:])
        with pytest.raises(ContentMismatch) as refused:
            publish_many([(good, None), (bad, digest_of(DATA))])
        assert (refused.value.chunks, refused.value.content) == ((2,), str(NEIGHBOUR))
    for size in (499, 501):
        with PartFile.open(disk, ContentId(5), size=size) as part:
            part.write(DATA)
            with pytest.raises(ContentMismatch, match=f"announced were {size}"):
                part.publish()
            part.discard()
    assert names_below(disk_path) == {f"parts/{CONTENT}.part", f"parts/{NEIGHBOUR}.part"}
    with DiskFolder.open(disk_path, disk.identity) as again, PartFile.open(again, NEIGHBOUR) as other:
        here = PartFile.open(disk, CONTENT)
        with here, pytest.raises(ValueError, match="one disk"):
            publish_many([(here, None), (other, None)])


def test_a_part_longer_than_announced_is_begun_again_and_others_resumed(disk: DiskFolder, disk_path: Path) -> None:
    begin(disk, some_bytes(600))
    with PartFile.open(disk, CONTENT, size=len(DATA), chunking=SMALL_CHUNKS) as part:
        assert (part.position, part.resumed) == (0, False)
        part.write(DATA)
        part.publish()
    assert read(disk, CONTENT) == DATA
    disk.remove(CONTENT)
    begin(disk, DATA[:100])
    with PartFile.open(disk, CONTENT, chunking=SMALL_CHUNKS) as part:
        assert (part.position, part.resumed) == (100, True)
        part.write(DATA[100:])
        with pytest.raises(DigestRequired):
            part.publish()
        part.publish(digest_of(DATA))
    disk.remove(CONTENT)
    begin(disk, DATA)
    stop = threading.Event()
    stop.set()
    with pytest.raises(HashingStopped):
        PartFile.open(disk, CONTENT, reading=ContentReading(stop=stop))
    with PartFile.open(disk, CONTENT) as part:
        assert part.position == len(DATA)
        part.discard()
    path = disk_path / "parts" / f"{CONTENT}.part"
    with PartFile.open(disk, CONTENT, size=10_000_000) as part:
        part.write(b"some")
        assert (path.stat().st_size, path.stat().st_blocks * 512 >= 10_000_000) == (4, True), "its space is reserved"
    PartFile.open(disk, CONTENT).close()
    assert path.stat().st_blocks * 512 < 1_000_000


def test_two_writers_exclude_each_other(disk: DiskFolder, disk_path: Path) -> None:
    with PartFile.open(disk, CONTENT) as part, DiskFolder.open(disk_path, disk.identity) as again:
        part.write(b"mine")
        with pytest.raises(PartInUse) as refused:
            PartFile.open(again, CONTENT)
        assert refused.value.content == str(CONTENT)
        with pytest.raises(PartInUse):
            again.discard_part(CONTENT)
        PartFile.open(again, NEIGHBOUR).discard()
        part.write(b" alone")
        part.publish()
    assert read(disk, CONTENT) == b"mine alone"


def test_a_part_that_is_discarded_between_opening_and_locking_is_begun_anew(disk: DiskFolder, disk_path: Path) -> None:
    first = PartFile.open(disk, CONTENT)
    first.write(b"discarded")
    phases: list[str] = []

    def discard_once(phase: str) -> None:
        if phase == "after open part" and phase not in phases:
            first.discard()
        phases.append(phase)

    with DiskFolder.open(disk_path, disk.identity, at=discard_once) as again, PartFile.open(again, CONTENT) as part:
        assert (part.position, phases.count("after open part")) == (0, 2)
        part.write(b"some")
        part.publish()
    assert read(disk, CONTENT) == b"some"


def test_a_content_that_appeared_meanwhile_is_kept_and_never_written_again(disk: DiskFolder, disk_path: Path) -> None:
    path = path_of(disk_path, CONTENT)
    path.parent.mkdir(parents=True)
    with PartFile.open(disk, CONTENT, chunking=SMALL_CHUNKS) as part:
        part.write(DATA)
        path.write_bytes(DATA[:-1])
        with pytest.raises(ContentExists, match="499 of them, where 500"):
            part.publish()
        path.write_bytes(DATA[:-1] + b"x")
        with pytest.raises(ContentExists):
            part.publish()
        assert path.read_bytes() == DATA[:-1] + b"x"
        path.write_bytes(DATA)
        inode = path.stat().st_ino
        assert part.publish() == digest_of(DATA)
    assert path.stat().st_ino == inode
    path.unlink()
    path.parent.rmdir()
    path.parents[1].rmdir()
    path = linked_by_a_killed_writer(disk, disk_path)
    with pytest.raises(ContentExists, match="500 bytes"):
        PartFile.open(disk, CONTENT)
    assert names_below(disk_path) == {f"contents/0191/b2c/{CONTENT}"}
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (DATA, 0o600)


def test_a_part_that_shares_its_bytes_with_the_quarantine_is_begun_anew(disk: DiskFolder, disk_path: Path) -> None:
    linked_by_a_killed_writer(disk, disk_path)
    name = disk.quarantine(CONTENT, "mismatch", 1_800_000_000)
    with PartFile.open(disk, CONTENT, chunking=SMALL_CHUNKS) as part:
        assert part.position == 0
        part.write(b"others")
        part.publish()
    assert (disk_path / "quarantine" / name).read_bytes() == DATA


def test_of_many_parts_those_whose_fsync_failed_are_removed(
    disk: DiskFolder, disk_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def fail_for_the_neighbour(fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").readlink().name == f"{NEIGHBOUR}.part":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(fd)

    with PartFile.open(disk, CONTENT) as good, PartFile.open(disk, NEIGHBOUR) as bad:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fail_for_the_neighbour)
            with pytest.raises(DiskFailed, match="Input/output error"):
                publish_many([(good, None), (bad, None)])
        assert names_below(disk_path) == {f"parts/{CONTENT}.part"}
        with pytest.raises(ValueError, match="closed"):
            bad.publish()
        good.publish()


def test_after_a_publication_that_failed_half_way_nothing_is_written_and_the_name_becomes_durable(
    disk: DiskFolder, disk_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync
    synced: list[str] = []

    def fail_for_folders(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path.is_dir():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(fd)

    def record(fd: int) -> None:
        fsync(fd)
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)

    with PartFile.open(disk, CONTENT) as part:
        part.write(b"some")
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fail_for_folders)
            with pytest.raises(DiskFailed):
                part.publish()
        with pytest.raises(ValueError, match="may be a content"):
            part.write(b"more")
        monkeypatch.setattr(os, "fsync", record)
        part.discard()
    assert synced == ["b2c", "0191", "contents"]
    assert names_below(disk_path) == {f"contents/0191/b2c/{CONTENT}"}
    assert read(disk, CONTENT) == b"some"


def test_a_folder_that_is_removed_while_a_content_is_linked_into_it_is_made_again(disk_path: Path) -> None:
    """The last content of a folder is removed, and with it the folder, after a publisher has opened it."""
    identity = create_disk(disk_path, CLUSTER)
    removed = 0

    def remove_folder(phase: str) -> None:
        nonlocal removed
        if phase == "before link" and removed < 3:
            path_of(disk_path, CONTENT).parent.rmdir()
            removed += 1

    with DiskFolder.open(disk_path, identity, at=remove_folder) as disk:
        store(disk, CONTENT, DATA)
        assert (removed, read(disk, CONTENT)) == (3, DATA)


def test_a_process_without_descriptors_is_not_a_disk_that_failed(disk: DiskFolder) -> None:
    store(disk, CONTENT, DATA)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(DescriptorsExhausted, match="LimitNOFILE"):
            disk.open_content(CONTENT)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
