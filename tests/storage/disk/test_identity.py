from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from peerd.storage.disk.errors import DiskNotEmpty, DiskReplaced, NotADisk, WrongDisk
from peerd.storage.disk.folder import DiskFolder
from peerd.storage.disk.identity import DiskIdentity, create_disk, read_disk_identity
from tests.storage.disk.conftest import CLUSTER

GOOD = {"disk": "d" * 32, "cluster": CLUSTER, "format": 1}


def test_a_disk_is_made_in_an_empty_folder_and_has_a_new_identity(disk_path: Path, tmp_path: Path) -> None:
    (disk_path / "lost+found").mkdir()
    identity = create_disk(disk_path, CLUSTER)
    assert read_disk_identity(disk_path) == identity
    assert json.loads((disk_path / "peerd-disk.json").read_text()) == GOOD | {"disk": identity.disk}
    other = tmp_path / "other"
    other.mkdir()
    assert create_disk(other, CLUSTER).disk != identity.disk


def test_a_disk_is_not_made_where_something_is_or_nothing_nor_for_what_is_no_cluster(disk_path: Path) -> None:
    with pytest.raises(ValueError, match="cluster"):
        create_disk(disk_path, "mine")
    with pytest.raises(NotADisk, match="no such folder"):
        create_disk(disk_path / "missing", CLUSTER)
    for name in ("holiday.jpg", ".hidden", "contents"):
        (disk_path / name).write_text("precious")
        with pytest.raises(DiskNotEmpty) as refused:
            create_disk(disk_path, CLUSTER)
        assert refused.value.entry == name
        assert [path.name for path in disk_path.iterdir()] == [name]
        (disk_path / name).unlink()
    identity = create_disk(disk_path, CLUSTER)
    with pytest.raises(DiskNotEmpty):
        create_disk(disk_path, CLUSTER)
    assert read_disk_identity(disk_path) == identity
    (disk_path / "peerd-disk.json").unlink()
    (disk_path / "parts" / "0191b2c3d4e5f607.part").write_bytes(b"bytes")
    with pytest.raises(DiskNotEmpty):
        create_disk(disk_path, CLUSTER)


def test_an_identity_that_cannot_be_right_is_refused(disk_path: Path) -> None:
    identity = create_disk(disk_path, CLUSTER)
    for text, problem in (
        (b"\xff\xfe", "not JSON"),
        (b"[" * 4000, "not JSON"),
        (b"[]", "no JSON object"),
        (b" " * 10_000_000, "longer than"),
        (json.dumps(GOOD | {"format": 2}).encode(), "format 2"),
        (json.dumps(GOOD | {"format": True}).encode(), "format True"),
        (json.dumps(GOOD | {"disk": "D" * 32}).encode(), "hexadecimal"),
        (json.dumps(GOOD | {"disk": "d" * 32 + "\n"}).encode(), "hexadecimal"),
        (json.dumps(GOOD | {"cluster": ["c" * 32]}).encode(), "hexadecimal"),
        (json.dumps(GOOD | {"more": 1}).encode(), "other fields"),
        (json.dumps({"disk": "d" * 32, "format": 1}).encode(), "other fields"),
    ):
        (disk_path / "peerd-disk.json").write_bytes(text)
        with pytest.raises(NotADisk, match=problem):
            DiskFolder.open(disk_path, identity)


def test_an_identity_that_is_no_file_is_refused_without_waiting(disk_path: Path, identity: DiskIdentity) -> None:
    file = disk_path / "peerd-disk.json"
    elsewhere = disk_path.parent / "identity"
    file.rename(elsewhere)
    makers: list[Callable[[], None]] = [file.mkdir, lambda: file.symlink_to(elsewhere), lambda: os.mkfifo(file)]
    for make in makers:
        make()
        with pytest.raises(NotADisk, match="no regular file"):
            DiskFolder.open(disk_path, identity)
        file.rmdir() if file.is_dir() else file.unlink()
    with pytest.raises(NotADisk, match=r"has no peerd-disk\.json"):
        DiskFolder.open(disk_path, identity)


def test_another_disk_and_another_cluster_are_refused(disk_path: Path, identity: DiskIdentity) -> None:
    for expected in (DiskIdentity("e" * 32, identity.cluster), DiskIdentity(identity.disk, "e" * 32)):
        with pytest.raises(WrongDisk) as refused:
            DiskFolder.open(disk_path, expected)
        assert (refused.value.expected, refused.value.found) == (str(expected), str(identity))


def test_a_disk_without_one_of_its_folders_is_not_opened(disk_path: Path, identity: DiskIdentity) -> None:
    outside = disk_path.parent / "outside"
    outside.mkdir()
    for name in ("contents", "parts", "quarantine"):
        (disk_path / name).rmdir()
        with pytest.raises(NotADisk, match=f"{name} is missing"):
            DiskFolder.open(disk_path, identity)
        assert not (disk_path / name).exists()
        (disk_path / name).symlink_to(outside)
        with pytest.raises(NotADisk, match=f"{name} is no folder"):
            DiskFolder.open(disk_path, identity)
        (disk_path / name).unlink()
        (disk_path / name).mkdir()


def test_a_check_finds_a_path_that_leads_elsewhere_and_what_was_replaced(disk: DiskFolder, disk_path: Path) -> None:
    disk.check(writable=True)
    moved = disk_path.with_name("moved")
    disk_path.rename(moved)
    with pytest.raises(DiskReplaced):
        disk.check()
    shutil.copytree(moved, disk_path)
    with pytest.raises(DiskReplaced):
        disk.check()
    shutil.rmtree(disk_path)
    moved.rename(disk_path)
    disk.check()
    (disk_path / "contents").rename(disk_path / "earlier")
    (disk_path / "contents").mkdir()
    with pytest.raises(DiskReplaced, match="contents"):
        disk.check()
    (disk_path / "peerd-disk.json").write_text(json.dumps(GOOD))
    with pytest.raises(WrongDisk):
        disk.check()
