"""Links, pipes, folders and files are where something else belongs: nothing outside is reached, and nothing blocks."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.errors import DiskError, DiskFailed, UnexpectedEntry
from peerd.storage.disk.folder import DiskFolder
from peerd.storage.disk.part_file import PartFile
from tests.storage.disk.contents import CONTENT, NEIGHBOUR, path_of, read, store

OUTSIDE = {"0191b2c3d4e5f607": b"precious", "0191b2c3d4e5f607.part": b"more", "b2c/0191b2c3d4e5f607": b"most"}

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder that looks as one of a disk does; nothing in it may change."""
    folder = tmp_path / "outside"
    for name, data in OUTSIDE.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    yield folder
    assert {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()} == OUTSIDE


def write_part(disk: DiskFolder) -> None:
    with PartFile.open(disk, CONTENT) as part:
        part.write(b"new bytes")
        part.publish()


OPERATIONS: dict[str, Callable[[DiskFolder], object]] = {
    "open_content": lambda disk: disk.open_content(CONTENT),
    "size": lambda disk: disk.size(CONTENT),
    "remove": lambda disk: disk.remove(CONTENT),
    "quarantine": lambda disk: disk.quarantine(CONTENT, "mismatch", 0),
    "write": write_part,
}


def link_the_first_folder(root: Path, outside: Path) -> Path:
    path = path_of(root, CONTENT).parents[1]
    path.symlink_to(outside)
    return path


def link_the_second_folder(root: Path, outside: Path) -> Path:
    path = path_of(root, CONTENT).parent
    path.parent.mkdir()
    path.symlink_to(outside)
    return path


def _content_place(root: Path) -> Path:
    path = path_of(root, CONTENT)
    path.parent.mkdir(parents=True)
    return path


def link_the_content(root: Path, outside: Path) -> Path:
    path = _content_place(root)
    path.symlink_to(outside / str(CONTENT))
    return path


def link_the_content_to_nothing(root: Path, outside: Path) -> Path:
    path = _content_place(root)
    path.symlink_to(outside / "missing")
    return path


def make_a_pipe_of_the_content(root: Path, outside: Path) -> Path:
    path = _content_place(root)
    os.mkfifo(path)
    return path


def make_a_folder_of_the_content(root: Path, outside: Path) -> Path:
    path = _content_place(root)
    path.mkdir()
    return path


def make_a_socket_of_the_content(root: Path, outside: Path) -> Path:
    path = _content_place(root)
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(path.parent, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{folder}/{path.name}")  # the path is too long for a socket
        os.close(folder)
    return path


def make_a_file_of_the_folder(root: Path, outside: Path) -> Path:
    path = path_of(root, CONTENT).parent
    path.parent.mkdir()
    path.write_bytes(b"some")
    return path


HOSTILE = [
    link_the_first_folder,
    link_the_second_folder,
    link_the_content,
    link_the_content_to_nothing,
    make_a_pipe_of_the_content,
    make_a_folder_of_the_content,
    make_a_socket_of_the_content,
    make_a_file_of_the_folder,
]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("place", HOSTILE)
def test_what_is_no_content_is_refused_and_left(
    disk: DiskFolder, disk_path: Path, outside: Path, place: Callable[[Path, Path], Path], operation: str
) -> None:
    path = place(disk_path, outside)
    before = path.lstat()
    with pytest.raises(UnexpectedEntry, match="wrong kind"):
        OPERATIONS[operation](disk)
    assert path.lstat().st_ino == before.st_ino
    assert list((disk_path / "parts").iterdir()) == []
    assert list((disk_path / "quarantine").iterdir()) == []


@pytest.mark.parametrize("place", HOSTILE)
def test_what_is_no_content_is_listed_as_unknown_and_not_walked(
    disk: DiskFolder, disk_path: Path, outside: Path, place: Callable[[Path, Path], Path]
) -> None:
    path = place(disk_path, outside)
    store(disk, ContentId(5), b"some")
    assert [content for batch in disk.walk() for content, _ in batch] == [ContentId(5)]
    (unknown,) = disk.unknown_entries()
    assert unknown.path == str(path.relative_to(disk_path))
    kind = "link" if path.is_symlink() else "folder" if path.is_dir() else "file" if path.is_file() else "other"
    assert unknown.kind == kind


@pytest.mark.parametrize("name", ["contents", "parts", "quarantine"])
def test_a_folder_of_the_disk_that_becomes_a_link_while_it_is_open_is_not_followed(
    disk: DiskFolder, disk_path: Path, outside: Path, name: str
) -> None:
    store(disk, CONTENT, b"some")
    (disk_path / name).rename(disk_path / "moved")
    (disk_path / name).symlink_to(outside)
    store(disk, NEIGHBOUR, b"other")
    disk.quarantine(CONTENT, "test", 0)
    assert {"moved", name} <= {unknown.path for unknown in disk.unknown_entries()}
    with pytest.raises(DiskError):
        disk.check()


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "folder"])
def test_what_is_no_part_is_neither_written_nor_removed(
    disk: DiskFolder, disk_path: Path, outside: Path, kind: str
) -> None:
    path = disk_path / "parts" / f"{CONTENT}.part"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(outside / (path.name if kind == "link" else "missing"))
    with pytest.raises(UnexpectedEntry):
        PartFile.open(disk, CONTENT)
    with pytest.raises(UnexpectedEntry):
        disk.discard_part(CONTENT)
    assert list(disk.old_parts(float("inf"))) == []
    assert [unknown.path for unknown in disk.unknown_entries()] == [f"parts/{CONTENT}.part"]


def test_a_part_whose_name_becomes_a_link_while_it_is_written_is_published_itself(
    disk: DiskFolder, disk_path: Path, outside: Path
) -> None:
    path = disk_path / "parts" / f"{CONTENT}.part"
    with PartFile.open(disk, CONTENT) as part:
        part.write(b"some")
        (disk_path / "second name").hardlink_to(path)
        path.unlink()
        path.symlink_to(outside / path.name)
        part.publish()
    assert path.is_symlink()
    assert not path_of(disk_path, CONTENT).is_symlink()
    assert read(disk, CONTENT) == b"some"


def test_a_part_whose_name_was_removed_is_not_published(disk: DiskFolder, disk_path: Path) -> None:
    with PartFile.open(disk, CONTENT) as part:
        part.write(b"some")
        (disk_path / "parts" / f"{CONTENT}.part").unlink()
        with pytest.raises(DiskFailed, match="No such file"):
            part.publish()
        part.discard()
    assert list(disk.walk()) == []


def test_names_of_any_bytes_are_listed_as_unknown(disk: DiskFolder, disk_path: Path) -> None:
    store(disk, CONTENT, b"some")
    names = {
        b"new\nline": "",
        b"\xff\xfe": "contents",
        b"0191B": "contents",
        b"0191b2c3d4e5f608": "contents/0191",
        b"0291b2c3d4e5f607": "contents/0191/b2c",
        b"0191b2c3d4e5f607.part\n": "parts",
        b"0191b2c3d4e5f607": "quarantine",
    }
    for name, folder in names.items():
        (disk_path / folder / os.fsdecode(name)).write_bytes(b"some")
    found = {unknown.path for unknown in disk.unknown_entries()}
    assert found == {f"{folder}/{os.fsdecode(name)}".lstrip("/") for name, folder in names.items()}
    assert sum(len(batch) for batch in disk.walk()) == 1
