"""A disk that is full, read-only, unmounted or mounted over: real file systems, which only root may mount."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import pytest

from peerd import Client
from peerd.domain.file_errors import NoNodeTakes
from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.digest import Chunking
from peerd.storage.disk.errors import DiskFailed, DiskOutOfSpace, DiskReadOnly
from peerd.storage.disk.folder import DiskFolder
from peerd.storage.disk.folder_disk import SmallParts
from peerd.storage.disk.identity import DiskIdentity, create_disk
from peerd.storage.disk.linux_calls import can_sync_file_system
from peerd.storage.disk.part_file import PartFile
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
from tests.storage.nodes import SECRET, ServedNode, StorageCluster
from tests.store.file_steps import Catalogue

SIZE = 2 * 1024 * 1024
Mount = Callable[..., None]


def mounting_is_possible() -> bool:
    if os.geteuid() != 0:
        return False
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not mounting_is_possible(), reason="file systems can be mounted by root only")


@pytest.fixture
def mount() -> Iterator[Mount]:
    """Mounts a small file system at a path, until the end of the test."""
    with ExitStack() as mounted:

        def mount_at(path: Path, *options: str) -> None:
            chosen = ",".join([f"size={SIZE}", *options])
            subprocess.run(["mount", "-t", "tmpfs", "-o", chosen, "tmpfs", str(path)], check=True, timeout=30)
            mounted.callback(unmount, path)

        yield mount_at


def unmount(path: Path) -> None:
    subprocess.run(["umount", "--lazy", str(path)], check=False, capture_output=True, timeout=30)


def remount(path: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(path)], check=True, timeout=30)


@pytest.fixture
def small(disk_path: Path, mount: Mount) -> DiskIdentity:
    mount(disk_path)
    return create_disk(disk_path, CLUSTER)


@contextmanager
def filled(path: Path, free: int) -> Iterator[None]:
    """The file system has only so many bytes left."""
    ballast = path / "lost+found"
    found = os.statvfs(path)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - free)
    yield
    ballast.unlink()


def test_a_disk_that_becomes_full_keeps_the_part_which_is_resumed(disk_path: Path, small: DiskIdentity) -> None:
    data = some_bytes(SIZE // 2)
    with DiskFolder.open(disk_path, small) as disk:
        with filled(disk_path, 256 * 1024), PartFile.open(disk, CONTENT, chunking=SMALL_CHUNKS) as part:
            with pytest.raises(DiskOutOfSpace) as full:
                part.write(data)
            assert full.value.entry == f"parts/{CONTENT}.part"
            assert "add a disk" in str(full.value)
            written = part.position
            assert 200 * 1024 < written <= 256 * 1024
            with pytest.raises(DiskOutOfSpace):
                part.write(data[written:])
            store(disk, NEIGHBOUR, b"")
            disk.quarantine(NEIGHBOUR, "mismatch", 0)
        with PartFile.open(disk, CONTENT, chunking=SMALL_CHUNKS) as part:
            assert part.position == written
            part.write(data[written:])
            part.publish(digest_of(data))
        assert read(disk, CONTENT) == data


def test_a_content_that_does_not_fit_is_refused_before_it_is_written(disk_path: Path, small: DiskIdentity) -> None:
    with DiskFolder.open(disk_path, small) as disk:
        free = disk.usage().free
        with pytest.raises(DiskOutOfSpace, match="reserving space"):
            PartFile.open(disk, CONTENT, size=SIZE + 1)
        assert names_below(disk_path) == set()
        with PartFile.open(disk, CONTENT) as part:
            part.write(bytes(4096))
        with pytest.raises(DiskOutOfSpace):
            PartFile.open(disk, CONTENT, size=SIZE + 1)
        assert names_below(disk_path) == {f"parts/{CONTENT}.part"}
        assert disk.usage().free >= free - 16 * 1024
        disk.discard_part(CONTENT)
        with PartFile.open(disk, CONTENT, size=SIZE // 2):
            assert disk.usage().free <= free - SIZE // 2


def test_a_disk_without_inodes_is_full_although_bytes_are_free(disk_path: Path, mount: Mount) -> None:
    mount(disk_path, "nr_inodes=9")
    identity = create_disk(disk_path, CLUSTER)
    with DiskFolder.open(disk_path, identity) as disk:
        store(disk, CONTENT, b"some")
        assert disk.usage().free_files == 1
        PartFile.open(disk, NEIGHBOUR).close()
        with pytest.raises(DiskOutOfSpace):
            PartFile.open(disk, ContentId(5))
        assert disk.usage().free > SIZE // 2
        assert disk.usage().free_files == 0


def test_a_disk_that_becomes_read_only_is_read_and_refuses_the_rest(disk_path: Path, small: DiskIdentity) -> None:
    with DiskFolder.open(disk_path, small) as disk:
        store(disk, CONTENT, b"some")
        with PartFile.open(disk, NEIGHBOUR) as part:
            part.write(b"begun")
        remount(disk_path, "ro")
        disk.check()
        with pytest.raises(DiskReadOnly):
            disk.check(writable=True)
        for change in (
            lambda: PartFile.open(disk, NEIGHBOUR),
            lambda: PartFile.open(disk, ContentId(5)),
            lambda: disk.remove(CONTENT),
            lambda: disk.quarantine(CONTENT, "mismatch", 0),
            lambda: disk.discard_part(NEIGHBOUR),
        ):
            with pytest.raises(DiskReadOnly, match="mount it for writing"):
                change()
        assert read(disk, CONTENT) == b"some"


def test_another_file_system_below_a_disk_takes_no_contents(disk_path: Path, small: DiskIdentity, mount: Mount) -> None:
    mount(disk_path / "contents")
    with DiskFolder.open(disk_path, small) as disk:
        with PartFile.open(disk, CONTENT) as part:
            part.write(b"some")
            with pytest.raises(DiskFailed, match="link"):
                part.publish()
        assert list(disk.walk()) == []


@pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="mkfs.ext4 is not installed")
def test_a_sync_that_fails_is_an_error_for_each_that_was_opened_before(mount: Mount, tmp_path: Path) -> None:
    """An ext4 in a file that cannot grow: what it writes late is lost, and only the sync can say so."""
    small, path = tmp_path / "small", tmp_path / "disk"
    small.mkdir()
    path.mkdir()
    mount(small, "size=8m")
    with (small / "image").open("wb") as image:
        image.truncate(200 * 1024 * 1024)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "nodiscard", str(small / "image")], check=True, timeout=30)
    if subprocess.run(["mount", "-o", "loop", str(small / "image"), str(path)], check=False, timeout=30).returncode:
        pytest.skip("there is no loop device")
    try:
        shutil.rmtree(path / "lost+found")
        identity = create_disk(path, CLUSTER)
        with DiskFolder.open(path, identity) as disk, SmallParts(disk) as first, SmallParts(disk) as second:
            if not can_sync_file_system(disk.root.fd):
                pytest.skip("this kernel does not report errors of a sync")
            for number in range(150):
                data = some_bytes(100_000, seed=number)
                (first if number % 2 else second).write(ContentId(number), data, digest_of(data, Chunking()))
            for small_parts in (first, second):
                with pytest.raises((DiskFailed, DiskOutOfSpace, DiskReadOnly)):
                    small_parts.publish()
            assert list(disk.walk()) == []
    finally:
        unmount(path)


def test_a_node_reports_a_disk_that_has_become_read_only_before_it_is_written(
    one_catalogue: Catalogue, tmp_path: Path, mount: Mount
) -> None:
    mount(tmp_path)
    node = ServedNode("small", tmp_path, one_catalogue)
    cluster = StorageCluster(one_catalogue, [node])
    one_catalogue.bucket()
    with Client(one_catalogue.store, secret=SECRET) as client, node.served():
        for option in ("rw", "ro", "rw"):
            remount(tmp_path, option)
            cluster.refresh()
            [disk] = client.files.overview().disks
            assert ("read-only" in (disk.problem or "")) is (option == "ro")
            with pytest.raises(NoNodeTakes, match="no disk is online") if option == "ro" else nullcontext():
                client.files.put(io.BytesIO(b"scene"), "films/f")
