"""Reading a file: from a disk of this node chunk by chunk, each verified before it is sent, or from other nodes.

A chunk with another hash than the catalogue's is never sent: the copy goes to quarantine, and the bytes that are
missing are read from another node.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Final, Self

from blake3 import blake3
from sqlalchemy.engine import Connection

from peerd.domain.files import CopyState, StoredFile
from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.digest import CHUNKING, Digest
from peerd.storage.disk.errors import ContentMismatch, ContentMissing, DiskError
from peerd.storage.disk.open_disk import OpenContent, Piece
from peerd.storage.local_disks import LocalDisk
from peerd.storage.node import StorageNode, digest_in_catalogue
from peerd.storage.transfer.errors import NoSourceLeft, SourceFailed, SourceHasOther
from peerd.storage.transfer.pull import check_status
from peerd.store.files.copies import Source, copies_bad, find_contents, find_sources
from peerd.store.files.listing import find_with_sources

MAX_TRIES: Final = 8
"""Tries at other nodes, for one chunk."""
FoundContent = tuple[Digest, list[Source]]
"""The digest of a content, and where it has copies."""


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
        self._local: tuple[LocalDisk, OpenContent] | None = None
        self._opened: list[OpenContent] = []
        """Open contents: pieces of them may still be sent when their disk is given up."""
        self._is_closed = False
        self._verifying = threading.Lock()
        """A cancelled request ends while a thread verifies: its descriptor must not become one of another file."""
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
        """Begin to read a version, with the digest and the copies that were found of it. Raises NoSourceLeft."""
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
        """Close the files of this node; their pieces cannot be sent any more. It does not wait: see `_verifying`."""
        self._is_closed = True
        if not self._verifying.acquire(blocking=False):
            return  # the thread that verifies closes them afterwards
        try:
            self._local = None
            while self._opened:
                self._opened.pop().close()
        finally:
            self._verifying.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_local(self) -> None:
        """Open the content on a disk of this node; on one that is remote only if no folder of another node has it."""
        elsewhere = any(source.node is not None for source in self._others())
        for source in self._sources:
            disk = self._node.disks.find(source.disk_id)
            if disk is None or source.state != CopyState.STORED.value or (disk.opened.is_remote and elsewhere):
                continue
            try:
                self._opened.append(disk.opened.open(self._content))
            except ContentMissing:
                self._report_bad(disk)
            except DiskError as error:
                self._problems.append(str(error))
            else:
                self._local = disk, self._opened[-1]
                return

    def _verified_local(self, index: int, begin: int, end: int) -> Piece | None:
        try:
            with self._verifying:
                if self._local is None:
                    return None
                disk, opened = self._local
                try:
                    return opened.verified_piece(self._digest, index, begin, end)
                except DiskError as error:
                    self._problems.append(str(error))
                    self._local = None
                    if not isinstance(error, ContentMismatch):
                        return None
                    with contextlib.suppress(DiskError):
                        disk.opened.quarantine(self._content, "mismatch", time.time(), found=opened)
        finally:
            if self._is_closed:
                self.close()
        self._report_bad(disk)
        return None

    def _report_bad(self, disk: LocalDisk) -> None:
        self._problems.append(f"disk {disk.number} has it no more, or damaged")
        self._node.database.run(copies_bad, disk.number, [self.file.id])
        self._node.report_bad_copies(disk, [self.file.id], "reading")

    def _others(self) -> list[Source]:
        """Sources that are read by HTTP: from folders of other nodes, then from shared disks, by a node with access."""
        return [one for one in self._sources if one.url is not None and one.node != self._node.name]

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


def find_to_serve(
    connection: Connection, bucket: str, key: str, *, is_head: bool
) -> tuple[StoredFile, FoundContent | None]:
    """A file, and what its content is read with, unless only its headers are asked for.

    Raises:
        BucketNotFound, FileMissing: there is no such bucket, or file.
        NoSourceLeft: the version was deleted in this moment.
    """
    file, sources = find_with_sources(connection, bucket, key)
    return file, None if is_head else (find_digest(connection, file), sources)


def find_content(connection: Connection, file: StoredFile) -> FoundContent:
    """The digest of the content of a version, and where it has copies.

    Raises:
        NoSourceLeft: the version was deleted in this moment.
    """
    return find_digest(connection, file), find_sources(connection, [file.id])[file.id]


def find_digest(connection: Connection, file: StoredFile) -> Digest:
    """The digest of the content of a version. Raises NoSourceLeft as `find_content`."""
    if file.size <= CHUNKING.smallest:  # of one chunk there is no list of chunks
        return Digest(file.size, bytes.fromhex(file.blake3), CHUNKING.smallest)
    content = find_contents(connection, [file.id]).get(file.id)
    if content is None:
        raise NoSourceLeft(str(ContentId(file.id)), ["it was deleted in this moment"])
    return digest_in_catalogue(content)
