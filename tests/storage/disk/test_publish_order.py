"""What a power cut would leave: no power can be cut here, so the order of the system calls is checked.

`recorded` wraps the functions of `os` that change a disk, and keeps what is durable after each: the bytes of a file as
of its latest fsync, the names in a folder as of the folder's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from peerd.storage.disk import part_file
from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.contents import ContentsFolder
from peerd.storage.disk.digest import Chunking
from peerd.storage.disk.folder import DiskFolder
from peerd.storage.disk.folder_disk import SmallParts
from peerd.storage.disk.identity import create_disk
from peerd.storage.disk.linux_calls import sync_file_system
from peerd.storage.disk.part_file import PartFile, publish_many
from tests.storage.disk.conftest import CLUSTER
from tests.storage.disk.contents import CONTENT, NEIGHBOUR, digest_of, names_below, path_of, some_bytes, store

DATA = some_bytes(1000)


class DurableState:
    """What would be on the disk after a power cut at this moment, at the least."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.sizes: dict[int, int] = {}
        self.names: dict[int, dict[str, int]] = {}
        self.linked_before_durable: list[str] = []

    def after_fsync(self, fd: int) -> None:
        status = os.fstat(fd)
        if os.path.isdir(f"/proc/self/fd/{fd}"):  # noqa: PTH112
            self.calls.append("fsync folder")
            self.names[status.st_ino] = {
                name: os.stat(name, dir_fd=fd, follow_symlinks=False).st_ino for name in os.listdir(fd)
            }
        else:
            self.calls.append("fsync")
            self.sizes[status.st_ino] = status.st_size

    def after_sync_of_file_system(self, fd: int) -> None:
        """All that is below the disk's folder; the descriptor is of its folder of parts."""
        self.calls.append("sync file system")
        for path, folders, names in os.walk(Path(f"/proc/self/fd/{fd}").readlink().parent):
            status = {name: (Path(path) / name).stat() for name in (*folders, *names)}
            self.names[Path(path).stat().st_ino] = {name: one.st_ino for name, one in status.items()}
            self.sizes |= {status[name].st_ino: status[name].st_size for name in names}

    def after_link(self, source: str, target: str, **folders: Any) -> None:
        self.calls.append("link")
        status = os.stat(target, dir_fd=folders.get("dst_dir_fd"), follow_symlinks=False)
        if self.sizes.get(status.st_ino) != status.st_size:
            self.linked_before_durable.append(target)

    def has(self, root: Path, path: Path) -> bool:
        """Whether each name of a path below a root is durable, and the bytes of the file."""
        folder = root
        for name in path.relative_to(root).parts:
            entry = folder / name
            if not entry.exists() or self.names.get(folder.stat().st_ino, {}).get(name) != entry.stat().st_ino:
                return False
            folder = entry
        return self.sizes.get(path.stat().st_ino) == path.stat().st_size


@contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[DurableState]:
    state = DurableState()

    def wrap(name: str, after: Callable[..., None]) -> None:
        function = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            answer = function(*arguments, **options)
            after(*arguments, **options)
            return answer

        patched.setattr(os, name, call)

    with monkeypatch.context() as patched:
        wrap("fsync", state.after_fsync)
        wrap("link", state.after_link)
        wrap("unlink", lambda *_, **__: state.calls.append("unlink"))
        wrap("rename", lambda *_, **__: state.calls.append("rename"))
        yield state


@pytest.fixture
def durable(monkeypatch: pytest.MonkeyPatch) -> Iterator[DurableState]:
    with recorded(monkeypatch) as state:
        yield state


def test_the_bytes_are_durable_before_the_name(disk: DiskFolder, disk_path: Path, durable: DurableState) -> None:
    path_of(disk_path, CONTENT).parent.mkdir(parents=True)  # by a publisher that was killed
    store(disk, CONTENT, DATA)
    assert durable.calls == ["fsync", "link", "fsync folder", "fsync folder", "fsync folder", "unlink"]
    assert durable.linked_before_durable == []
    assert durable.has(disk_path / "contents", path_of(disk_path, CONTENT))
    durable.calls.clear()
    store(disk, NEIGHBOUR, DATA)  # contents/ has no new name
    assert durable.calls == ["fsync", "link", "fsync folder", "fsync folder", "unlink"]
    assert durable.has(disk_path / "contents", path_of(disk_path, NEIGHBOUR))
    equal = path_of(disk_path, ContentId(CONTENT.number + 2))
    with PartFile.open(disk, ContentId(CONTENT.number + 2)) as part:
        part.write(DATA)
        equal.write_bytes(DATA)
        part.publish()
    assert durable.has(disk_path / "contents", equal), "nothing is put in its place"


@pytest.mark.parametrize(("count", "is_reliable"), [(21, False), (21, True), (7, True)])
def test_of_many_all_bytes_are_durable_before_the_first_name_and_each_folder_is_synced_once(
    disk: DiskFolder, durable: DurableState, monkeypatch: pytest.MonkeyPatch, *, count: int, is_reliable: bool
) -> None:
    descriptors, disk_path = list[int](), disk.path

    def sync(fd: int) -> None:
        sync_file_system(fd)
        descriptors.append(fd)
        durable.after_sync_of_file_system(fd)

    monkeypatch.setattr(part_file, "can_sync_file_system", lambda _: is_reliable)
    monkeypatch.setattr(part_file, "sync_file_system", sync)
    contents = [ContentId(CONTENT.number + number) for number in range(1, count)] + [ContentId(5)]
    with SmallParts(disk) as small:
        opened_before = small._opened_before
        assert names_below(disk_path) == set(), "the descriptor is opened before anything is written"
        for content in contents:
            small.write(content, DATA, digest_of(DATA, Chunking()))
        small.publish()
    is_at_once = is_reliable and count > 7
    assert descriptors == ([opened_before] if is_at_once else [])
    syncs = ["sync file system"] if is_at_once else ["fsync"] * count
    assert durable.calls == syncs + ["link"] * count + ["fsync folder"] * 5 + ["unlink"] * count
    assert durable.linked_before_durable == []
    for content in contents:
        assert durable.has(disk_path / "contents", path_of(disk_path, content))


def test_what_a_killed_publisher_had_linked_is_made_durable(
    disk: DiskFolder, disk_path: Path, durable: DurableState
) -> None:
    with PartFile.open(disk, CONTENT) as part:
        part.write(DATA)
        part.sync()
    path = path_of(disk_path, CONTENT)
    path.parent.mkdir(parents=True)
    path.hardlink_to(disk_path / "parts" / f"{CONTENT}.part")
    with pytest.raises(Exception, match="already"):
        PartFile.open(disk, CONTENT)
    assert durable.has(disk_path / "contents", path)
    assert durable.calls[-1] == "unlink"


def test_a_removal_and_a_quarantine_are_durable_when_they_return(disk: DiskFolder, durable: DurableState) -> None:
    store(disk, CONTENT, DATA)
    store(disk, NEIGHBOUR, DATA)
    durable.calls.clear()
    disk.remove(CONTENT)
    assert durable.calls == ["unlink", "fsync folder"]
    durable.calls.clear()
    disk.quarantine(NEIGHBOUR, "mismatch", 0)
    assert durable.calls == ["rename", "fsync folder", "fsync folder"]


def test_an_identity_is_durable_before_its_name_and_its_folders_too(disk_path: Path, durable: DurableState) -> None:
    create_disk(disk_path, CLUSTER)
    assert durable.calls == ["fsync", "fsync folder", "link", "unlink", "fsync folder"]
    assert durable.linked_before_durable == []
    assert durable.has(disk_path, disk_path / "peerd-disk.json")
    assert set(durable.names[disk_path.stat().st_ino]) == {"contents", "parts", "quarantine", "peerd-disk.json"}


def _publish_before_fsync(patched: pytest.MonkeyPatch) -> None:
    """The bytes are made durable after the name is there."""
    synced: list[Any] = []
    sync_each, sync_folders = part_file._sync_each, ContentsFolder.sync

    def sync(self: ContentsFolder, contents: Iterable[ContentId]) -> None:
        sync_each(synced)
        sync_folders(self, contents)

    patched.setattr(part_file, "_sync_each", synced.extend)
    patched.setattr(ContentsFolder, "sync", sync)


def _publish_without_fsync(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(part_file, "_sync_each", lambda _: None)


def _leave_names_to_the_system(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(ContentsFolder, "sync", lambda *_: None)


@pytest.mark.slow
@pytest.mark.parametrize("break_it", [_publish_before_fsync, _publish_without_fsync, _leave_names_to_the_system])
@pytest.mark.parametrize("count", [1, 3])
def test_a_publication_in_another_order_is_caught(
    disk: DiskFolder,
    disk_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    break_it: Callable[[pytest.MonkeyPatch], None],
    count: int,
) -> None:
    contents = [ContentId(CONTENT.number + number) for number in range(count)]
    break_it(monkeypatch)
    with recorded(monkeypatch) as durable:
        parts = [PartFile.open(disk, content) for content in contents]
        for part in parts:
            part.write(DATA)
        publish_many([(part, None) for part in parts])
    are_kept = all(durable.has(disk_path / "contents", path_of(disk_path, content)) for content in contents)
    assert durable.linked_before_durable or not are_kept
