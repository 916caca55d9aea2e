"""A disk in a temporary folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from peerd.storage.disk.folder import DiskFolder
from peerd.storage.disk.identity import DiskIdentity, create_disk

CLUSTER = "c" * 32


@pytest.fixture
def disk_path(tmp_path: Path) -> Path:
    path = tmp_path / "disk"
    path.mkdir()
    return path


@pytest.fixture
def identity(disk_path: Path) -> DiskIdentity:
    return create_disk(disk_path, CLUSTER)


@pytest.fixture
def disk(disk_path: Path, identity: DiskIdentity) -> Iterator[DiskFolder]:
    with DiskFolder.open(disk_path, identity) as opened:
        yield opened
