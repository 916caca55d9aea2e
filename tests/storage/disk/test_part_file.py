from __future__ import annotations

import errno
import os
import resource
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peerd.storage.disk import linux_calls, part_file
from peerd.storage.disk.content_id import ContentId, new_content_id
from peerd.storage.disk.digest import Chunking, ContentReading
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


def begin(disk: DiskFolder, data: bytes, content: ContentId = CONTENT) -> None:
    """Leave a part with these bytes."""
    with PartFile.open(disk, content, chunking=SMALL_CHUNKS) as part:
        part.write(data)


def test_a_content_is_what_was_written(disk: DiskFolder, disk_path: Path) -> None:
    for size in (0, 1, 64, 500, 513, 100_000):
        data = some_bytes(size)
        assert store(disk, CONTENT, data) == digest_of(data)
        assert read(disk, CONTENT) == data
        assert disk.size(CONTENT) == size
        assert names_below(disk_path) == {"contents/0191/b2c/0191b2c3d4e5f607"}
        assert path_of(disk_path, CONTENT).stat().st_mode & 0o777 == 0o600
        disk.remove(CONTENT)


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


def test_the_space_of_an_announced_size_is_reserved_without_making_the_part_longer(
    disk: DiskFolder, disk_path: Path
) -> None:
    with PartFile.open(disk, CONTENT, size=10_000_000) as part:
        part.write(b"some")
        status = (disk_path / "parts" / f"{CONTENT}.part").stat()
        assert status.st_size == 4
        assert status.st_blocks * 512 >= 10_000_000
    with PartFile.open(disk, CONTENT) as part:
        assert part.position == 4
        assert (disk_path / "parts" / f"{CONTENT}.part").stat().st_blocks * 512 < 1_000_000


def test_the_disk_begins_with_large_contents_before_their_end(
    disk: DiskFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[int, int]] = []

    def start_writing(fd: int, start: int, length: int) -> None:
        begun.append((start, length))
        linux_calls.start_writing(fd, start, length)

    monkeypatch.setattr(part_file, "start_writing", start_writing)
    mebibyte = 1024 * 1024
    with PartFile.open(disk, CONTENT) as part:
        for _ in range(5):
            part.write(bytes(5 * mebibyte))
        part.publish()
    assert begun == [(0, 10 * mebibyte), (10 * mebibyte, 10 * mebibyte)]


def test_a_part_with_fewer_or_more_bytes_than_announced_is_not_published(disk: DiskFolder) -> None:
    for size in (499, 501):
        with PartFile.open(disk, CONTENT, size=size, chunking=SMALL_CHUNKS) as part:
            part.write(DATA)
            with pytest.raises(ContentMismatch, match=f"announced were {size}"):
                part.publish()
            part.discard()


def test_a_part_with_other_bytes_than_expected_is_not_published_and_its_chunk_named(disk: DiskFolder) -> None:
    wrong = bytearray(DATA)
    wrong[130] ^= 1
    with PartFile.open(disk, CONTENT, chunking=SMALL_CHUNKS) as part:
        part.write(wrong)
        with pytest.raises(ContentMismatch) as refused:
            part.publish(digest_of(DATA))
        assert (refused.value.chunks, refused.value.content) == ((2,), str(CONTENT))
        part.discard()
    store(disk, CONTENT, DATA)


def test_a_part_is_begun_again_if_it_is_longer_than_announced_and_else_resumed(disk: DiskFolder) -> None:
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


def test_of_many_writers_of_one_id_one_publishes(disk: DiskFolder, disk_path: Path) -> None:
    """Whatever the others see: a part in use, or a content that exists."""
    outcomes: list[str] = []
    begun = threading.Barrier(8)

    def write(number: int) -> None:
        begun.wait()
        try:
            store(disk, CONTENT, some_bytes(5000, seed=number))
        except (PartInUse, ContentExists) as error:
            outcomes.append(type(error).__name__)
        else:
            outcomes.append(f"published {number}")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    (published,) = [outcome for outcome in outcomes if outcome.startswith("published")]
    assert len(outcomes) == 8
    assert read(disk, CONTENT) == some_bytes(5000, seed=int(published.split()[1]))
    assert names_below(disk_path) == {f"contents/0191/b2c/{CONTENT}"}


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


def test_an_equal_content_that_appeared_meanwhile_is_kept_and_another_one_too(
    disk: DiskFolder, disk_path: Path
) -> None:
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
    with pytest.raises(ContentExists, match="500 bytes"):
        PartFile.open(disk, CONTENT)
    assert path.stat().st_ino == inode
    assert names_below(disk_path) == {f"contents/0191/b2c/{CONTENT}"}


def test_a_content_that_was_linked_by_a_killed_writer_is_never_written_again(disk: DiskFolder, disk_path: Path) -> None:
    begin(disk, DATA)
    path = path_of(disk_path, CONTENT)
    path.parent.mkdir(parents=True)
    path.hardlink_to(disk_path / "parts" / f"{CONTENT}.part")
    with pytest.raises(ContentExists):
        PartFile.open(disk, CONTENT)
    assert names_below(disk_path) == {f"contents/0191/b2c/{CONTENT}"}
    assert path.read_bytes() == DATA


def test_a_part_that_shares_its_bytes_with_the_quarantine_is_begun_anew(disk: DiskFolder, disk_path: Path) -> None:
    begin(disk, DATA)
    path = path_of(disk_path, CONTENT)
    path.parent.mkdir(parents=True)
    path.hardlink_to(disk_path / "parts" / f"{CONTENT}.part")
    name = disk.quarantine(CONTENT, "mismatch", 1_800_000_000)
    with PartFile.open(disk, CONTENT, chunking=SMALL_CHUNKS) as part:
        assert part.position == 0
        part.write(b"others")
        part.publish()
    assert (disk_path / "quarantine" / name).read_bytes() == DATA


def test_many_parts_are_published_with_one_fsync_of_each_folder(disk_path: Path) -> None:
    identity = create_disk(disk_path, CLUSTER)
    phases: list[str] = []
    contents = [ContentId(CONTENT.number + number) for number in range(20)]
    with DiskFolder.open(disk_path, identity, at=phases.append) as disk:
        parts = [PartFile.open(disk, content, chunking=SMALL_CHUNKS) for content in contents]
        for number, part in enumerate(parts):
            part.write(some_bytes(100, seed=number))
        digests = publish_many([(part, None) for part in parts])
        assert publish_many([]) == []
        for number, content in enumerate(contents):
            assert read(disk, content) == some_bytes(100, seed=number)
    assert digests == [digest_of(some_bytes(100, seed=number)) for number in range(20)]
    assert phases.count("after fsync part") == 20
    assert phases.count("after fsync folder") == 3  # of the contents' folder, the one above, and contents/
    assert phases.index("before link") > len(phases) - 1 - phases[::-1].index("after fsync part")
    assert phases.index("before fsync folder") > len(phases) - 1 - phases[::-1].index("after link")


def test_of_many_parts_none_is_published_if_one_is_not_the_expected(disk: DiskFolder, disk_path: Path) -> None:
    with PartFile.open(disk, CONTENT) as good, PartFile.open(disk, NEIGHBOUR) as bad:
        good.write(b"good")
        bad.write(b"bad")
        with pytest.raises(ContentMismatch):
            publish_many([(good, None), (bad, digest_of(b"expected", Chunking()))])
    assert names_below(disk_path) == {f"parts/{CONTENT}.part", f"parts/{NEIGHBOUR}.part"}


def test_of_many_parts_those_whose_fsync_failed_are_removed_and_the_others_stay_parts(
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
            with pytest.raises(DiskFailed):
                publish_many([(good, None), (bad, None)])
        assert names_below(disk_path) == {f"parts/{CONTENT}.part"}
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


def test_parts_of_two_disks_are_not_published_together(disk: DiskFolder, disk_path: Path) -> None:
    with (
        DiskFolder.open(disk_path, disk.identity) as again,
        PartFile.open(disk, CONTENT) as one,
        PartFile.open(again, NEIGHBOUR) as other,
        pytest.raises(ValueError, match="one disk"),
    ):
        publish_many([(one, None), (other, None)])


def test_a_part_whose_fsync_failed_is_removed_and_not_published_by_a_second_one(
    disk: DiskFolder, disk_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with PartFile.open(disk, CONTENT) as part:
        part.write(DATA)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fail)
            with pytest.raises(DiskFailed, match="Input/output error"):
                part.publish()
        with pytest.raises(ValueError, match="closed"):
            part.publish()
    assert names_below(disk_path) == set()


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


def test_publishers_and_removers_of_one_folder_do_not_disturb_each_other(disk: DiskFolder) -> None:
    errors: list[BaseException] = []

    def publish_and_remove(number: int) -> None:
        content = ContentId(CONTENT.number + number)
        try:
            for _ in range(30):
                store(disk, content, DATA)
                assert read(disk, content) == DATA
                disk.remove(content)
        except BaseException as error:  # noqa: BLE001 - it is raised by the test
            errors.append(error)

    threads = [threading.Thread(target=publish_and_remove, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert errors == []
    assert list(disk.walk()) == []


def test_a_process_without_descriptors_is_not_a_disk_that_failed(disk: DiskFolder) -> None:
    store(disk, CONTENT, DATA)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(DescriptorsExhausted, match="LimitNOFILE"):
            disk.open_content(CONTENT)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
