"""Contents for the tests of disks, small chunks for them, and what of them is on a disk."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.digest import Chunking, ContentHasher, Digest
from peerd.storage.disk.folder import DiskFolder
from peerd.storage.disk.part_file import PartFile

SMALL_CHUNKS = Chunking(smallest=64, most=8)
CONTENT = ContentId(0x0191B2C3D4E5F607)
NEIGHBOUR = ContentId(0x0191B2C3D4E5F608)
"""In the same folder as CONTENT."""


def some_bytes(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def digest_of(data: bytes, chunking: Chunking = SMALL_CHUNKS) -> Digest:
    """The digest of bytes that are hashed at once."""
    hasher = ContentHasher(chunking, len(data))
    hasher.update(data)
    digest = hasher.digest()
    assert digest is not None
    return digest


def store(disk: DiskFolder, content: ContentId, data: bytes, **options: Any) -> Digest:
    with PartFile.open(disk, content, chunking=SMALL_CHUNKS, **options) as part:
        part.write(data)
        return part.publish()


def read(disk: DiskFolder, content: ContentId) -> bytes:
    with os.fdopen(disk.open_content(content), "rb") as file:
        return file.read()


def path_of(root: Path, content: ContentId) -> Path:
    return root.joinpath("contents", *content.folders, str(content))


def names_below(root: Path) -> set[str]:
    """The path of each name below a disk that is no folder."""
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_symlink() or not path.is_dir()} - {
        "peerd-disk.json"
    }
