"""FileReading a file: from a disk of this node chunk by chunk, each verified before it is sent, or from other nodes.

A chunk with another hash than the catalogue's is never sent: the copy goes to quarantine, and the bytes that are
missing are read from another node.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from io import FileIO
from typing import Final, Self

import msgspec
from blake3 import blake3
from sqlalchemy.engine import Connection

from peerd.domain.files import CopyState, DiskKind, StoredFile
from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.digest import CHUNKING, Digest, verify_chunk
from peerd.storage.disk.errors import ContentMismatch, ContentMissing, DiskError
from peerd.storage.local_disks import LocalDisk
from peerd.storage.node import StorageNode, digest_in_catalogue
from peerd.storage.transfer.errors import NoSourceLeft, SourceFailed, SourceHasOther
from peerd.storage.transfer.pull import check_status
from peerd.store.files.copies import Source, copies_bad, find_contents, find_sources

MAX_TRIES: Final = 8
"""Of other nodes, for one chunk."""
IN_MEMORY: Final = 64 * 1024
"""Bytes of this node up to which a range is sent from memory: that costs less than to have the system send the file."""
MOST_AHEAD: Final = 8
"""Chunks of this node that are verified while others are sent."""


class LocalRange(msgspec.Struct, frozen=True):
    """Bytes of an open file that were verified."""

    fd: int
    offset: int
    count: int


Piece = LocalRange | bytes
"""A part of a body: a range of a file of this node, or bytes of another node."""


class FileReading:
    """A file that is being read; closed at the end of ``with``.

    Args:
        node: which reads it.
        file: the version.
        digest: of its content.
        sources: where it has copies.
    """

    def __init__(self, node: StorageNode, file: StoredFile, digest: Digest, sources: list[Source]) -> None:
        self.file = file
        self._node = node
        self._digest = digest
        self._content = ContentId(file.id)
        self._sources = sources
        self._local: tuple[LocalDisk, int] | None = None
        self._opened: list[int] = []
        """Descriptors, of which pieces may still be sent when their disk is given up."""
        self._problems: list[str] = []

    @classmethod
    def begin(cls, node: StorageNode, file: StoredFile) -> Self:
        """Find the copies of a version.

        Raises:
            NoSourceLeft: it has none that can be read.
        """
        return cls.of_found(node, file, *node.database.read(find_content, file))

    @classmethod
    def of_found(cls, node: StorageNode, file: StoredFile, digest: Digest, sources: list[Source]) -> Self:
        """As `begin`, of what `find_content` has found."""
        reading = cls(node, file, digest, sources)
        reading._open_local()
        if reading._local is None and not reading._others():
            raise NoSourceLeft(str(reading._content), reading._problems)
        return reading

    def pieces(self, start: int, stop: int) -> Iterator[Piece]:
        """The bytes from ``start`` to before ``stop``, in pieces of at most a chunk, each verified.

        Raises:
            NoSourceLeft: no node has the next chunk whole.
        """
        for index in self._digest.chunks_of(start, stop):
            positions = self._digest.chunk_range(index)
            begin, end = max(start, positions.start), min(stop, positions.stop)
            local = self._verified_local(index, begin, end)
            if local is not None:
                yield local
            else:
                chunk = self._chunk_of_others(index)
                yield chunk[begin - positions.start : end - positions.start]

    def close(self) -> None:
        """Close the file of this node; its pieces cannot be sent any more."""
        self._local = None
        while self._opened:
            os.close(self._opened.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_local(self) -> None:
        for source in self._sources:
            disk = self._node.disks.find(source.disk_id)
            if disk is None or source.state != CopyState.STORED.value:
                continue
            try:
                self._opened.append(disk.folder.open_content(self._content))
            except ContentMissing:
                self._report_bad(disk)
            except DiskError as error:
                self._problems.append(str(error))
            else:
                self._local = disk, self._opened[-1]
                return

    def _verified_local(self, index: int, begin: int, end: int) -> Piece | None:
        if self._local is None:
            return None
        disk, fd = self._local
        try:
            with disk.folder.steps.read("reading", str(self._content)):
                verify_chunk(fd, self._digest, index)
                data = os.pread(fd, end - begin, begin) if end - begin <= IN_MEMORY else None
        except ContentMismatch as error:
            self._problems.append(str(error))
            with contextlib.suppress(ContentMissing):
                disk.folder.quarantine(self._content, "mismatch", time.time(), fd=fd)
            self._report_bad(disk)
            self._local = None
            return None
        except DiskError as error:
            self._problems.append(str(error))
            self._local = None
            return None
        return LocalRange(fd, begin, end - begin) if data is None else data

    def _report_bad(self, disk: LocalDisk) -> None:
        self._problems.append(f"disk {disk.number} has it no more, or damaged")
        self._node.database.run(copies_bad, disk.number, [self.file.id])

    def _others(self) -> list[Source]:
        return [
            source
            for source in self._sources
            if source.url is not None and source.kind == DiskKind.FOLDER.value and source.node != self._node.name
        ]

    def _chunk_of_others(self, index: int) -> bytes:
        """A chunk from another node, verified."""
        others, tries = self._others(), 0
        while others and tries < MAX_TRIES:
            source = others[tries % len(others)]
            tries += 1
            try:
                data = self._read_chunk(source, index)
            except (SourceHasOther, SourceFailed) as error:
                self._problems.append(str(error))
                continue
            if blake3(data).digest() == self._digest.chunk_blake3(index):
                return data
            self._problems.append(f"{source.url}: chunk {index} is damaged")
            self._node.request_verification(source.disk_id, self.file.id)
        raise NoSourceLeft(str(self._content), self._problems)

    def _read_chunk(self, source: Source, index: int) -> bytes:
        positions = self._digest.chunk_range(index)
        if not positions:
            return b""
        headers = {"range": f"bytes={positions.start}-{positions.stop - 1}"}
        assert source.url is not None
        with self._node.http.request("GET", source.url, f"/contents/{self._content}", headers=headers) as response:
            check_status(response, source.url)
            data = response.read(len(positions) + 1)
        if len(data) != len(positions):
            raise SourceFailed(source.url, f"it gave {len(data)} bytes of {len(positions)}")
        return data


def find_content(connection: Connection, file: StoredFile) -> tuple[Digest, list[Source]]:
    """The digest of the content of a version, and where it has copies.

    Raises:
        NoSourceLeft: the version was deleted in this moment.
    """
    if file.size <= CHUNKING.smallest:  # of one chunk there is no list of chunks
        digest = Digest(file.size, bytes.fromhex(file.blake3), CHUNKING.smallest)
    else:
        content = find_contents(connection, [file.id]).get(file.id)
        if content is None:
            raise NoSourceLeft(str(ContentId(file.id)), ["it was deleted in this moment"])
        digest = digest_in_catalogue(content)
    return digest, find_sources(connection, [file.id])[file.id]


def next_pieces(pieces: Iterator[Piece], most: int) -> list[Piece]:
    """The next pieces; ranges of a file that follow one another are one. None are left when the list is empty.

    Args:
        pieces: of a body.
        most: chunks of a file of this node; of another node one is enough, because it is in memory.
    """
    found: list[Piece] = []
    for number, piece in enumerate(pieces, 1):
        last = found[-1] if found else None
        if isinstance(piece, LocalRange) and isinstance(last, LocalRange) and last.fd == piece.fd:
            found[-1] = LocalRange(last.fd, last.offset, last.count + piece.count)
        else:
            found.append(piece)
        if number == most or isinstance(piece, bytes):
            break
    return found


def open_for_sending(piece: LocalRange) -> FileIO:
    """The file of a range, as the kernel sends it; closing it leaves the descriptor open."""
    return FileIO(piece.fd, closefd=False)
