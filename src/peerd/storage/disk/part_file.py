"""A content while it is written, and its publication (the order of the steps: `peerd.storage.disk`)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self

from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.contents import LastFolder
from peerd.storage.disk.digest import (
    CHUNKING,
    Chunking,
    ContentHasher,
    ContentReading,
    ContentVerifier,
    Digest,
    hash_file,
    refuse_difference,
)
from peerd.storage.disk.errors import ContentExists, ContentMismatch, DigestRequired, DiskError, DiskReplaced
from peerd.storage.disk.folder import DiskFolder
from peerd.storage.disk.held_folder import same_file
from peerd.storage.disk.linux_calls import (
    can_sync_file_system,
    release_reserved_space,
    reserve_space,
    start_writing,
    sync_file_system,
)
from peerd.storage.disk.walk import PART_SUFFIX

_WRITTEN_AT_ONCE: Final = 8 * 1024 * 1024
"""The disk begins with so many bytes as soon as they are there: hashing and writing overlap, and a gigabyte is not left
to the fsync (measured on ext4: 1.5 times the throughput, 0.02 s in the place of 1.5 s for the fsync)."""

_SYNC_THREADS: Final = 16
"""fsyncs at the same time share one commit of the file system's journal (measured on ext4: 1.5 to 3 times as fast)."""

_SYNCED_TOGETHER: Final = 8
"""Parts from which on one sync of the file system is used in the place of the fsync of each."""


_Hasher = ContentHasher | ContentVerifier


class PartFile:
    """A part that is open for its only writer; closed at the end of ``with``. What is not published can be resumed.

    One thread at a time may use it. `content` is its id, `position` where the next byte is written, `resumed` whether
    it had bytes already when it was opened.
    """

    def __init__(self, disk: DiskFolder, content: ContentId, fd: int, hasher: _Hasher, size: int | None) -> None:
        self.disk = disk
        self.content = content
        self.resumed = hasher.position > 0
        self._entry = f"{disk.parts.entry}/{content}{PART_SUFFIX}"
        self._fd = fd
        self._hasher = hasher
        self._chunking = hasher.chunking if isinstance(hasher, ContentHasher) else CHUNKING
        self._size = size
        self._begun = self.position
        self._linked = False

    @classmethod
    def open(
        cls,
        disk: DiskFolder,
        content: ContentId,
        *,
        size: int | None = None,
        expected: Digest | None = None,
        chunking: Chunking = CHUNKING,
        reading: ContentReading | None = None,
    ) -> Self:
        """Begin a part, or resume the one that is there: its bytes are hashed again.

        Args:
            disk: where it is written.
            content: its id.
            size: bytes of the whole content, if they are known: their space is reserved.
            expected: the digest that it must have, if it is known from the catalogue: then only that is verified.
            chunking: of its digest.
            reading: how the bytes of a resumed part are read.

        Raises:
            PartInUse: another writer has it open.
            ContentExists: the content was published already. A publication that was interrupted is finished.
            DiskOutOfSpace: there is no space for so many bytes; nothing is left of a new part.
            UnexpectedEntry: what has its name is no regular file.
            DiskError: it could not be opened or read.
            HashingStopped: the event of `reading` was set.
        """
        fd = _open_locked(disk, content)
        entry = disk.parts.path_of(f"{content}{PART_SUFFIX}")
        try:
            with disk.steps.read("reserving space", entry):
                _reserve(fd, size)
            hasher: _Hasher = ContentHasher(chunking, size) if expected is None else ContentVerifier(expected)
            with disk.steps.read("reading", entry):
                (reading or ContentReading()).feed(fd, hasher)
        except BaseException:
            _close_unless_useful(disk, content, fd)
            raise
        return cls(disk, content, fd, hasher, size)

    @classmethod
    def open_new(cls, disk: DiskFolder, content: ContentId, expected: Digest, last: LastFolder) -> Self:
        """Begin a part of a small content; what is left of an earlier one is removed, and no space is reserved.

        Args:
            disk: where it is written.
            content: its id.
            expected: the digest that it must have, by the catalogue.
            last: of the contents of the disk; contents in the order of their ids are found by it at the least cost.

        Raises:
            PartInUse, ContentExists, UnexpectedEntry, DiskError: see `open`.
        """
        fd = _create_locked(disk, content)
        try:
            published = last.status(content)
            if published is not None:
                raise ContentExists(str(disk.path), str(content), f"it has {published.st_size} bytes")
        except BaseException:
            _close_unless_useful(disk, content, fd)
            raise
        return cls(disk, content, fd, ContentVerifier(expected), expected.size)

    @property
    def position(self) -> int:
        """Bytes that are written."""
        return self._hasher.position

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes. After an error those that were written count, and the part can be resumed.

        Raises:
            DiskOutOfSpace, DiskFailed, DiskReadOnly: not all could be written.
            ValueError: it is closed, or its publication has begun.
        """
        if self._linked:
            raise ValueError(f"the part {self.content} may be a content already: nothing is written to it")
        view = memoryview(data).cast("B")
        while view:
            with self.disk.steps.change("write", self._entry):
                written = os.pwrite(self._open_fd(), view, self.position)
            self._hasher.update(view[:written])
            view = view[written:]
            if self.position - self._begun >= _WRITTEN_AT_ONCE:
                self.start_writing()

    def start_writing(self) -> None:
        """Have the disk begin with the bytes that were written since; they are not durable before `sync`."""
        if self.position > self._begun:
            start_writing(self._open_fd(), self._begun, self.position - self._begun)
            self._begun = self.position

    def publish(self, expected: Digest | None = None) -> Digest:
        """Make it a content, durably, and close it. As `publish_many`, of one."""
        return publish_many([(self, expected)])[0]

    def discard(self) -> None:
        """Remove it, and close it. Raises DiskError if it could not be removed.

        If its publication has failed after it became a content, that stays.
        """
        try:
            self.disk.remove_part(self._open_fd(), self.content)
        finally:
            self.close()

    def close(self) -> None:
        """Close it, and end the lock. What is written stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The steps of a publication.

    def checked_digest(self, expected: Digest | None) -> Digest:
        """The digest of what is written, if this may be published. Raises as `publish_many`."""
        if expected is None and self.resumed:
            raise DigestRequired(str(self.content))
        if self._size is not None and self.position != self._size:
            raise ContentMismatch(
                f"{self.position} bytes are written, announced were {self._size}", content=str(self.content)
            )
        if isinstance(self._hasher, ContentVerifier):
            self._hasher.refuse_difference(str(self.content))
            digest: Digest | None = self._hasher.expected
        else:
            digest = self._hasher.digest()
        if digest is None:  # its size was not known, and needs larger chunks
            with self.disk.steps.read("reading", self._entry):
                digest = hash_file(self._open_fd(), self._chunking)
        if expected is not None:
            refuse_difference(expected, digest, str(self.content))
        return digest

    def sync(self) -> None:
        """Make its bytes durable.

        After an error the part is removed: Linux reports a failed write to the first fsync only, and a second one would
        succeed although the bytes never reached the disk (LWN 752063).
        """
        try:
            with self.disk.steps.change("fsync part", self._entry):
                os.fsync(self._open_fd())
        except DiskError:
            with contextlib.suppress(DiskError):
                self.discard()
            raise

    def link(self, digest: Digest, last: LastFolder) -> None:
        """Give it its name among the contents, unless an equal content has it."""
        self._linked = True
        while not last.link(self._open_fd(), self.content):
            fd = self.disk.contents.open(self.content)
            if fd is None:  # it was removed meanwhile
                continue
            try:
                if not same_file(os.fstat(fd), os.fstat(self._open_fd())):
                    self._refuse_other(fd, digest)
                return
            finally:
                os.close(fd)

    def finish(self) -> None:
        """End it: its content is durable."""
        self.disk.remove_part(self._open_fd(), self.content, published=True)
        self.close()

    def _refuse_other(self, fd: int, digest: Digest) -> None:
        entry = "/".join(("contents", *self.content.folders, str(self.content)))
        with self.disk.steps.read("reading", entry):
            found = hash_file(fd, self._chunking)
            if found != digest:
                problem = f"other bytes, {found.size} of them, where {digest.size} were to be published"
                raise ContentExists(str(self.disk.path), str(self.content), problem)
            os.fsync(fd)

    def _open_fd(self) -> int:
        if self._fd < 0:
            raise ValueError(f"the part {self.content} is closed")
        return self._fd


def publish_many(parts: Sequence[tuple[PartFile, Digest | None]], *, opened_before: int | None = None) -> list[Digest]:
    """Make parts contents, durably, and close them: with one fsync for each folder that they share.

    When it returns, all are contents. After an error some may be; those that are not stay parts, to be resumed,
    discarded or published again.

    Args:
        parts: of one disk, each with the digest that it must have, or None. A process has a limit of open files: some
            hundred parts are enough to share the folders' fsync.
        opened_before: a descriptor of a folder of the disk, opened before the first byte of the parts was written,
            which no other thread uses. With it, many parts are made durable by one sync of the file system where that
            can be relied upon; without it, by the fsync of each.

    Returns:
        The digest of each.

    Raises:
        ContentMismatch: one has other bytes than expected, or another size than announced; none is published.
        DigestRequired: one was resumed, and has no expected digest; none is published.
        ContentExists: another content has the id of one. An equal one is kept in its place, and that is no error.
        DiskError: one could not be made durable; it is removed, because nothing is known of its bytes. If that was
            a sync of the file system, all are.
        ValueError: they are not of one disk.
    """
    if len({id(part.disk) for part, _ in parts}) > 1:
        raise ValueError("the parts are not of one disk")
    digests = [part.checked_digest(expected) for part, expected in parts]
    if not parts:
        return []
    disk = parts[0][0].disk
    _sync_all(disk, [part for part, _ in parts], opened_before)
    with disk.contents.last_folder() as last:
        for (part, _), digest in zip(parts, digests, strict=True):
            part.link(digest, last)
    disk.contents.sync(part.content for part, _ in parts)
    for part, _ in parts:
        part.finish()
    return digests


def _sync_all(disk: DiskFolder, parts: Sequence[PartFile], opened_before: int | None) -> None:
    if opened_before is not None and len(parts) >= _SYNCED_TOGETHER and can_sync_file_system(opened_before):
        _sync_together(disk, parts, opened_before)
    else:
        _sync_each(parts)


def _sync_together(disk: DiskFolder, parts: Sequence[PartFile], opened_before: int) -> None:
    """Make the bytes of parts durable by one sync; after an error all are removed, see `PartFile.sync`."""
    try:
        with disk.steps.change("sync file system", disk.parts.entry):
            sync_file_system(opened_before)
    except DiskError:
        for part in parts:
            with contextlib.suppress(DiskError):
                part.discard()
        raise


def _sync_each(parts: Sequence[PartFile]) -> None:
    if len(parts) < 2:
        for part in parts:
            part.sync()
        return
    for part in parts:
        part.start_writing()
    with ThreadPoolExecutor(min(_SYNC_THREADS, len(parts)), thread_name_prefix="peerd-fsync") as pool:
        for _ in pool.map(PartFile.sync, parts):
            pass


def _open_locked(disk: DiskFolder, content: ContentId) -> int:
    """The descriptor of a part that is no content yet, made if there is none, and locked."""
    name = f"{content}{PART_SUFFIX}"
    while True:
        with disk.steps.change("open part", disk.parts.path_of(name)):
            fd = disk.parts.open(name, os.O_RDWR | os.O_CREAT)
        if fd is None:  # ENOENT: the folder parts/ itself was removed
            raise DiskReplaced(str(disk.path))
        try:
            disk.lock_part(fd, content)
            if disk.names_part(fd, content) and _is_incomplete(disk, content, fd):
                return fd
        except BaseException:
            _close_unless_useful(disk, content, fd)
            raise
        os.close(fd)


def _create_locked(disk: DiskFolder, content: ContentId) -> int:
    """The descriptor of a new part, locked."""
    while True:
        fd = disk.parts.create(f"{content}{PART_SUFFIX}")
        if fd is None:
            disk.discard_part(content)
            continue
        try:
            disk.lock_part(fd, content)
            if os.fstat(fd).st_nlink == 1:  # else it was removed before it was locked
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _is_incomplete(disk: DiskFolder, content: ContentId, fd: int) -> bool:
    """Whether a part may be written; if not, its name is removed."""
    published = disk.contents.status(content)
    if published is not None:
        disk.remove_part(fd, content)
        raise ContentExists(str(disk.path), str(content), f"it has {published.st_size} bytes")
    if os.fstat(fd).st_nlink > 1:
        # Published, and quarantined since: a write here would change what is in quarantine.
        disk.remove_part(fd, content)
        return False
    return True


def _reserve(fd: int, size: int | None) -> None:
    """Reserve the space of a whole content, and give back what was reserved for another size."""
    if size is not None and os.fstat(fd).st_size > size:
        os.ftruncate(fd, 0)  # longer than the whole content: it is of another one
    release_reserved_space(fd)
    try:
        reserve_space(fd, size or 0)
    except OSError:
        release_reserved_space(fd)
        raise


def _close_unless_useful(disk: DiskFolder, content: ContentId, fd: int) -> None:
    """Close a part after an error; an empty one of ours is removed, because it holds nothing."""
    try:
        with contextlib.suppress(DiskError):
            disk.lock_part(fd, content)
            if os.fstat(fd).st_size == 0:
                disk.remove_part(fd, content)
    finally:
        os.close(fd)
