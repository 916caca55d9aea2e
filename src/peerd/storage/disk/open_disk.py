"""A disk that is open: a folder of this node, or a part of a bucket in an object store.

Puts, copies, reads, verifications and sweeps know disks by these interfaces alone. `peerd.storage.disk.folder_disk` and
`peerd.storage.object_disk` implement them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, Self

import msgspec

from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.digest import ContentReading, Digest
from peerd.storage.disk.errors import DiskError, RemoteDiskError
from peerd.storage.disk.identity import DiskIdentity
from peerd.storage.disk.walk import StoredContent


class DiskUsage(NamedTuple):
    """The space of a disk.

    Args:
        total: bytes.
        free: bytes that peerd may still fill.
        free_files: how many files can still be made; None where there is no limit of its own.
    """

    total: int
    free: int
    free_files: int | None


class LocalRange(msgspec.Struct, frozen=True):
    """Bytes of an open file, which the kernel can send."""

    fd: int
    offset: int
    count: int


Piece = LocalRange | bytes
"""A part of a body: a range of a file of this node, which can be sent until the content is closed, or bytes."""


class OpenContent(ABC):
    """A content that is open for reading; closed at the end of ``with``.

    Attributes:
        size: its bytes, as the disk has them.
    """

    size: int

    @abstractmethod
    def read(self, position: int, count: int) -> bytes:
        """Bytes from a position on: ``count`` of them, or as many as there are. Raises DiskError."""

    @abstractmethod
    def verify(self, expected: Digest, reading: ContentReading | None = None) -> None:
        """Read all of it, and compare it.

        Raises:
            ContentMismatch: it has other bytes; `chunks` are the wrong ones.
            HashingStopped: the event of ``reading`` was set.
            DiskError: it could not be read.
        """

    @abstractmethod
    def verified_piece(self, expected: Digest, index: int, start: int, stop: int) -> Piece:
        """Bytes of a chunk, as they are sent best, when the whole chunk was compared.

        Args:
            expected: the digest of the content.
            index: of the chunk.
            start: the first byte, as a position in the content.
            stop: the end, as a position in the content, at the end of the chunk or before it.

        Raises:
            ContentMismatch: the chunk has other bytes.
            DiskError: it could not be read.
        """

    @abstractmethod
    def pieces(self, start: int, stop: int) -> Iterator[Piece]:
        """The bytes from ``start`` to before ``stop``, not verified. Raises DiskError."""

    @abstractmethod
    def close(self) -> None:
        """Close it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ContentWriter(Protocol):
    """A content while it is written, by its only writer; see `peerd.storage.disk.part_file.PartFile`."""

    content: ContentId

    @property
    def position(self) -> int:
        """Bytes that are written."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes. Raises DiskError."""

    def checked_digest(self, expected: Digest | None) -> Digest:
        """The digest of what is written, if it may be published. Raises ContentMismatch and DigestRequired."""

    def publish(self, expected: Digest | None = None) -> Digest:
        """Make it a content, durably, and close it. Raises as `checked_digest`, and DiskError."""

    def discard(self) -> None:
        """Remove it, and close it. Raises DiskError."""

    def close(self) -> None:
        """Close it; what can be resumed stays."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class SmallContents(ABC):
    """Small contents that are written, then made durable together; closed at the end of ``with``. For one thread."""

    @abstractmethod
    def write(self, content: ContentId, data: bytes | memoryview, expected: Digest) -> None:
        """Write all bytes of a content; best in the order of the ids.

        Args:
            content: its id.
            data: all of its bytes.
            expected: its digest by the catalogue.

        Raises:
            ContentMismatch: they are other bytes; nothing is left of them.
            ContentExists: it is there already.
            PartInUse: another writer has it.
            DiskError: it could not be written.
        """

    @abstractmethod
    def publish(self) -> list[ContentId]:
        """Make those that were written durable; return their ids.

        Raises:
            DiskError: one could not be made durable. Others may be contents.
        """

    @abstractmethod
    def close(self) -> None:
        """Close those that were not published."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OpenDisk(ABC):
    """A disk that is open; thread-safe.

    Attributes:
        name: its path, or the address of its place in an object store.
        identity: which disk it is.
        is_remote: whether its contents come over a network, so that copies on other disks are read rather.
        is_reserved: whether the share of [storage] `reserve` stays free on it.
        verify_every: seconds within which each copy is verified; None: as [storage] says; 0: never.
    """

    name: str
    identity: DiskIdentity
    is_remote: bool
    is_reserved: bool
    verify_every: float | None

    @abstractmethod
    def check(self, *, writable: bool = False) -> None:
        """Check that it still is this disk; cheap enough to be called often.

        Args:
            writable: check, too, that it can be written, as far as that can be found out without a write.

        Raises:
            NotADisk, WrongDisk, DiskReplaced: it is not.
            DiskReadOnly, DiskOutOfSpace: it cannot be written.
            DiskError: it could not be read.
        """

    @abstractmethod
    def usage(self) -> DiskUsage:
        """The space of the disk. Raises DiskError."""

    @abstractmethod
    def open(self, content: ContentId) -> OpenContent:
        """Open a content for reading.

        Raises:
            ContentMissing: there is none of this id.
            DiskError: it could not be opened.
        """

    def read_small(self, contents: Iterable[ContentId], at_most: int) -> dict[ContentId, bytes]:
        """All bytes of small contents, not verified; what is missing, larger, or cannot be read is left out.

        Args:
            contents: their ids; best in order.
            at_most: bytes of one.

        Raises:
            RemoteDiskError: it cannot be read now.
        """
        found: dict[ContentId, bytes] = {}
        for content in contents:
            try:
                with self.open(content) as opened:
                    if opened.size <= at_most:
                        found[content] = opened.read(0, opened.size)
            except RemoteDiskError:
                raise
            except DiskError:
                continue
        return found

    @abstractmethod
    def begin(self, content: ContentId, size: int | None = None, *, expected: Digest | None = None) -> ContentWriter:
        """Begin to write a content, or go on where an earlier writer has ended.

        Args:
            content: its id.
            size: its bytes, if they are known.
            expected: the digest that it must have, if it is known from the catalogue: then it is hashed once only, see
                `peerd.storage.disk.digest.ContentVerifier`.

        Raises:
            ContentExists: it is there already.
            PartInUse: another writer has it.
            DiskError: it could not be begun.
        """

    @abstractmethod
    def begin_small(self) -> SmallContents:
        """Begin to write small contents that are made durable together, some hundred at most. Raises DiskError."""

    @abstractmethod
    def remove(self, content: ContentId) -> None:
        """Remove a content, durably. Raises ContentMissing and DiskError."""

    @abstractmethod
    def quarantine(self, content: ContentId, reason: str, now: float, *, found: OpenContent | None = None) -> str:
        """Move a bad content out of the way, durably.

        Args:
            content: its id.
            reason: a word that becomes a part of its name: "mismatch".
            now: the time, in seconds of Unix time.
            found: where its badness was found: if another one has its name by now, that is left alone.

        Returns:
            its name in quarantine.

        Raises:
            ContentMissing: there is none of this id, or another one than ``found``.
            DiskError: it could not be moved.
        """

    @abstractmethod
    def restore(self, content: ContentId, expected: Digest, reading: ContentReading | None = None) -> bool:
        """Bring a content back from quarantine, if it is whole there; whether it was.

        Raises:
            HashingStopped: the event of ``reading`` was set.
            DiskError: it could not be read or moved.
        """

    @abstractmethod
    def without_writer(self, content: ContentId) -> AbstractContextManager[None]:
        """Within ``with``, no writer of this node publishes the content. Raises PartInUse and DiskError."""

    @abstractmethod
    def walk(self, *, batch: int) -> Iterator[list[StoredContent]]:
        """The contents of the disk in the order of their ids, in lists of ``batch``. Raises DiskError."""

    @abstractmethod
    def remove_old_parts(self, before: float) -> int:
        """Remove what is incomplete and was last written, or begun, before a time; how many there were.

        Args:
            before: in seconds of Unix time.

        Raises:
            DiskError: they could not be listed or removed.
        """

    @abstractmethod
    def discard_part(self, content: ContentId) -> None:
        """Remove an incomplete content, if there is one. Raises PartInUse and DiskError."""

    @abstractmethod
    def quarantined(self) -> list[str]:
        """The names in quarantine. Raises DiskError."""

    @abstractmethod
    def remove_from_quarantine(self, name: str) -> None:
        """Remove an entry of quarantine, if it is there. Raises DiskError."""


class DiskPlace(ABC):
    """A place of [storage] where a disk should be.

    Attributes:
        name: its path, or its address in an object store; reported to the catalogue.
    """

    name: str

    @abstractmethod
    def open(self, cluster: str) -> OpenDisk:
        """Open the disk that is there. Nothing is written.

        Args:
            cluster: the identity that its cluster must have.

        Raises:
            NotADisk, WrongDisk: there is no disk, or one of another cluster.
            DiskError: it could not be read.
        """
