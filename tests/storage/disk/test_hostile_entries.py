"""Links, pipes, folders and files are where something else belongs: nothing outside is reached, and nothing blocks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.errors import DiskError, UnexpectedEntry
from peerd.storage.disk.folder import DiskFolder
from peerd.storage.disk.folder_disk import SmallParts
from peerd.storage.disk.part_file import PartFile
from tests.storage.disk.contents import CONTENT, NEIGHBOUR, digest_of, path_of, read, store

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


OPERATIONS: tuple[Callable[[DiskFolder], object], ...] = (
    lambda disk: disk.open_content(CONTENT),
    lambda disk: disk.size(CONTENT),
    lambda disk: disk.remove(CONTENT),
    lambda disk: disk.quarantine(CONTENT, "mismatch", 0),
    write_part,
)
PLACES = "first-folder:link second-folder:link content:link content:pipe content:folder second-folder:file"


def make(where: str, what: str, root: Path, outside: Path) -> Path:
    """Put something hostile in the place of a content or of one of its folders; its path."""
    content = path_of(root, CONTENT)
    path = {"content": content, "second-folder": content.parent, "first-folder": content.parents[1]}[where]
    path.parent.mkdir(parents=True, exist_ok=True)
    makers: dict[str, Callable[[], object]] = {
        "link": lambda: path.symlink_to(outside / str(CONTENT) if where == "content" else outside),
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "file": lambda: path.write_bytes(b"some"),
    }
    makers[what]()
    return path


@pytest.mark.parametrize("place", PLACES.split())
def test_what_is_no_content_is_listed_as_unknown(disk: DiskFolder, disk_path: Path, outside: Path, place: str) -> None:
    where, what = place.split(":")
    path = make(where, what, disk_path, outside)
    before = path.lstat()
    for operation in OPERATIONS:
        with pytest.raises(UnexpectedEntry, match="wrong kind"):
            operation(disk)
    assert path.lstat().st_ino == before.st_ino
    assert list((disk_path / "parts").iterdir()) == []
    assert list((disk_path / "quarantine").iterdir()) == []
    store(disk, ContentId(5), b"some")
    assert [content for batch in disk.walk() for content, _ in batch] == [ContentId(5)]
    (unknown,) = disk.unknown_entries()
    assert unknown.path == str(path.relative_to(disk_path))
    kind = "link" if path.is_symlink() else "folder" if path.is_dir() else "file" if path.is_file() else "other"
    assert unknown.kind == kind


@pytest.mark.parametrize("name", ["contents", "parts", "quarantine"])
def test_a_folder_that_becomes_a_link_is_not_followed(
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


def test_what_is_no_part_is_neither_written_nor_removed(disk: DiskFolder, disk_path: Path, outside: Path) -> None:
    path = disk_path / "parts" / f"{CONTENT}.part"
    makers: list[Callable[[], object]] = [lambda: os.mkfifo(path), lambda: path.symlink_to(outside / "no"), path.mkdir]
    for put in makers:
        path.unlink(missing_ok=True)
        put()
        with pytest.raises(UnexpectedEntry):
            PartFile.open(disk, CONTENT)
        with SmallParts(disk) as small, pytest.raises(UnexpectedEntry):
            small.write(CONTENT, b"some", digest_of(b"some"))
        with pytest.raises(UnexpectedEntry):
            disk.discard_part(CONTENT)
        assert list(disk.old_parts(float("inf"))) == []
        assert [unknown.path for unknown in disk.unknown_entries()] == [f"parts/{CONTENT}.part"]


def test_a_part_whose_name_becomes_a_link_is_published_itself(disk: DiskFolder, disk_path: Path, outside: Path) -> None:
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
