"""The audit of the end: what the catalogue says beside what is on the disks, whose contents are all read and hashed."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from blake3 import blake3
from sqlalchemy.engine import Connection

from peerd.domain.files import CopyState, DiskState, FileState
from peerd.store.connection.database import Database
from peerd.store.files.classes import list_classes
from peerd.store.files.disks import list_disks
from peerd.store.schema.tables import file_copies, files

BLOCK: Final = 1024 * 1024
FILE_COLUMNS: Final = (files.c.id, files.c.file_key, files.c.state, files.c.class_name, files.c.blake3, files.c.size)
COPY_COLUMNS: Final = (file_copies.c.file_id, file_copies.c.disk_id, file_copies.c.state)


class FoundContent(msgspec.Struct, frozen=True):
    """A content on a disk: of which version, on which disk, its BLAKE3 in hex, and when it was written (Unix time)."""

    file_id: int
    disk_id: int
    digest: str
    size: int
    changed_at: float


class DiskAudit(msgspec.Struct):
    """What was found.

    Attributes:
        problems: what must not be.
        counts: how much was examined.
        unknown: contents without a row of their copy.
    """

    problems: list[str] = msgspec.field(default_factory=list)
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    unknown: list[FoundContent] = msgspec.field(default_factory=list)


class CatalogueRows(msgspec.Struct, frozen=True):
    """The catalogue at one moment."""

    files: dict[int, Any]
    copies: dict[int, dict[int, str]]
    """By file and disk, the state."""
    wanted: dict[str, int]
    """Copies, by class."""
    nodes: dict[int, str | None]
    """The node of each disk that is not lost."""
    paths: dict[int, Path]


def read_catalogue(database: Database) -> CatalogueRows:
    """All of it, in one transaction."""

    def read(connection: Connection) -> CatalogueRows:
        copies: dict[int, dict[int, str]] = defaultdict(dict)
        for row in connection.execute(sa.select(*COPY_COLUMNS)):
            copies[row.file_id][row.disk_id] = row.state
        disks = [disk for disk in list_disks(connection) if disk.state != DiskState.LOST.value]
        return CatalogueRows(
            files={row.id: row for row in connection.execute(sa.select(*FILE_COLUMNS))},
            copies=copies,
            wanted={one.name: one.copies for one in list_classes(connection)},
            nodes={disk.id: disk.node for disk in disks},
            paths={disk.id: Path(disk.path) for disk in disks},
        )

    return database.read(read)


def content_path(root: Path, file_id: int) -> Path:
    """Where a disk has the content of a version."""
    text = f"{file_id:016x}"
    return root / "contents" / text[:4] / text[4:7] / text


def digest_of_file(path: Path) -> str | None:
    """BLAKE3 of a file in hex, as it is read without peerd; None: there is none."""
    hasher = blake3()
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                hasher.update(block)
    except FileNotFoundError:
        return None
    return hasher.hexdigest()


def find_on_disks(rows: CatalogueRows) -> list[FoundContent]:
    """All contents of all disks."""
    return [found for disk_id, root in rows.paths.items() for found in _contents_of(disk_id, root)]


def audit(rows: CatalogueRows, found: list[FoundContent], *, grace: float, now: float | None = None) -> DiskAudit:
    """Compare the catalogue with the disks, when nothing is left to be done.

    Args:
        rows: the catalogue.
        found: see `find_on_disks`.
        grace: seconds for which a content may wait for its row.
        now: Unix time.
    """
    result = DiskAudit()
    on_disks = {(content.file_id, content.disk_id): content for content in found}
    for file_id, file in rows.files.items():
        if file.state == FileState.STORED.value:
            _audit_file(rows, file, on_disks, result)
        else:
            result.problems.append(f"{file.state} version {file_id:016x} of {file.file_key} still has its row")
    for content in found:
        if content.disk_id not in rows.copies.get(content.file_id, {}):
            result.unknown.append(content)
            age = (time.time() if now is None else now) - content.changed_at
            result.counts["unknown contents, younger than their grace" if age < grace else "unknown contents"] += 1
    result.counts["contents on disks"] = len(found)
    return result


def _audit_file(
    rows: CatalogueRows, file: Any, on_disks: dict[tuple[int, int], FoundContent], result: DiskAudit
) -> None:
    """It has exactly as many copies as its class wants, all good, on as many nodes."""
    copies, wanted = rows.copies.get(file.id, {}), rows.wanted[file.class_name]
    name = f"{file.file_key} ({file.id:016x})"
    good = 0
    for disk_id, state in copies.items():
        content = on_disks.get((file.id, disk_id))
        if state != CopyState.STORED.value:
            result.problems.append(f"{name}: its copy on disk {disk_id} is {state}")
        elif content is None:
            result.problems.append(f"{name}: its stored copy on disk {disk_id} is not there")
        elif (content.digest, content.size) != (file.blake3, file.size):
            result.problems.append(f"{name}: its stored copy on disk {disk_id} is damaged")
        else:
            good += 1
    nodes = {rows.nodes.get(disk_id) for disk_id in copies}
    if not good:
        result.problems.append(f"{name} IS LOST: it has no good copy")
    if (good, len(nodes)) != (wanted, wanted):
        result.problems.append(f"{name} has {good} good copies on {len(nodes)} nodes, not {wanted}")
    result.counts["files"] += 1
    result.counts["good copies"] += good


def _contents_of(disk_id: int, root: Path) -> Iterator[FoundContent]:
    for path in sorted((root / "contents").rglob("*")):
        if path.is_file():
            status = path.stat()
            digest = digest_of_file(path)
            assert digest is not None
            yield FoundContent(int(path.name, 16), disk_id, digest, status.st_size, status.st_mtime)
