"""A folder of this node as a disk."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.contents import LastFolder
from peerd.storage.disk.digest import ContentReading, Digest, verify_chunk, verify_file
from peerd.storage.disk.errors import ContentMismatch, DiskError, PartInUse, WrongDisk
from peerd.storage.disk.folder import DiskFolder
from peerd.storage.disk.held_folder import FOLDER, DiskSteps, HeldFolder, Marker, mark_nothing
from peerd.storage.disk.identity import read_disk_identity
from peerd.storage.disk.open_disk import DiskPlace, DiskUsage, LocalRange, OpenContent, OpenDisk, Piece, SmallContents
from peerd.storage.disk.part_file import PartFile, publish_many
from peerd.storage.disk.walk import StoredContent

SENT_FROM_MEMORY: Final = 64 * 1024
"""Bytes up to which a range is sent from memory: that costs less than to have the kernel send a range of the file."""


class FileContent(OpenContent):
    """A content that is an open file.

    Args:
        fd: its descriptor, which this object closes.
        entry: its name, for errors.
        steps: of its disk.
    """

    def __init__(self, fd: int, entry: str, steps: DiskSteps) -> None:
        self.fd = fd
        self.size = os.fstat(fd).st_size
        self._entry = entry
        self._steps = steps

    def read(self, position: int, count: int) -> bytes:
        with self._steps.read("reading", self._entry):
            return os.pread(self.fd, count, position)

    def verify(self, expected: Digest, reading: ContentReading | None = None) -> None:
        with self._steps.read("reading", self._entry):
            verify_file(self.fd, expected, reading)

    def verified_piece(self, expected: Digest, index: int, start: int, stop: int) -> Piece:
        is_small = stop - start <= SENT_FROM_MEMORY
        with self._steps.read("reading", self._entry):
            kept = verify_chunk(self.fd, expected, index, range(start, stop) if is_small else range(0))
        return kept if is_small else LocalRange(self.fd, start, stop - start)

    def pieces(self, start: int, stop: int) -> Iterator[Piece]:
        yield LocalRange(self.fd, start, stop - start)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class FolderDisk(OpenDisk):
    """A folder of this node.

    Args:
        folder: which is open.
    """

    is_remote = False
    is_reserved = True
    verify_every = None

    def __init__(self, folder: DiskFolder) -> None:
        self.folder = folder
        self.name = str(folder.path)
        self.identity = folder.identity

    def check(self, *, writable: bool = False) -> None:
        self.folder.check(writable=writable)

    def usage(self) -> DiskUsage:
        return self.folder.usage()

    def open(self, content: ContentId) -> FileContent:
        return FileContent(self.folder.open_content(content), str(content), self.folder.steps)

    def read_small(self, contents: Iterable[ContentId], at_most: int) -> dict[ContentId, bytes]:
        found: dict[ContentId, bytes] = {}
        with self.folder.contents.last_folder() as last:
            for content in contents:
                with contextlib.suppress(DiskError):
                    data = self._read_small(last, content, at_most)
                    if data is not None:
                        found[content] = data
        return found

    def begin(self, content: ContentId, size: int | None = None, *, expected: Digest | None = None) -> PartFile:
        return PartFile.open(self.folder, content, size=size, expected=expected)

    def begin_small(self) -> SmallParts:
        return SmallParts(self.folder)

    def remove(self, content: ContentId) -> None:
        self.folder.remove(content)

    def quarantine(self, content: ContentId, reason: str, now: float, *, found: OpenContent | None = None) -> str:
        fd = found.fd if isinstance(found, FileContent) else None
        return self.folder.quarantine(content, reason, now, fd=fd)

    def restore(self, content: ContentId, expected: Digest, reading: ContentReading | None = None) -> bool:
        for name in self.folder.quarantined():
            if not name.startswith(f"{content}."):
                continue
            fd = self.folder.quarantine_folder.open(name)
            if fd is None:
                continue
            found = FileContent(fd, f"quarantine/{name}", self.folder.steps)
            with found, contextlib.suppress(ContentMismatch):
                found.verify(expected, reading)
                return self.folder.restore(content, name, fd)
        return False

    def without_writer(self, content: ContentId) -> AbstractContextManager[None]:
        return self.folder.without_writer(content)

    def walk(self, *, batch: int) -> Iterator[list[StoredContent]]:
        return self.folder.walk(batch=batch)

    def remove_old_parts(self, before: float) -> int:
        removed = 0
        for part in self.folder.old_parts(before):
            with contextlib.suppress(PartInUse):
                self.folder.discard_part(part.content)
                removed += 1
        return removed

    def discard_part(self, content: ContentId) -> None:
        self.folder.discard_part(content)

    def quarantined(self) -> list[str]:
        return self.folder.quarantined()

    def remove_from_quarantine(self, name: str) -> None:
        self.folder.remove_from_quarantine(name)

    def _read_small(self, last: LastFolder, content: ContentId, at_most: int) -> bytes | None:
        fd = last.open(content)
        if fd is None:
            return None
        try:
            with self.folder.steps.read("reading", str(content)):
                size = os.fstat(fd).st_size
                return os.pread(fd, size, 0) if size <= at_most else None
        finally:
            os.close(fd)


class FolderPlace(DiskPlace):
    """A folder of [storage] `disks`.

    Args:
        path: of it.
        at: called before and after each step that changes the disk, for tests of interruptions.
    """

    def __init__(self, path: Path, at: Marker = mark_nothing) -> None:
        self.name = str(path)
        self._path = path
        self._at = at

    def open(self, cluster: str) -> FolderDisk:
        """Open the disk; its descriptors are closed when no transfer uses them any more."""
        identity = read_disk_identity(self._path)
        if identity.cluster != cluster:
            raise WrongDisk(self.name, f"a disk of cluster {cluster}", str(identity))
        folder = DiskFolder.open(self._path, identity, at=self._at)
        held = (folder.contents.folder, folder.parts, folder.quarantine_folder, folder.root)
        weakref.finalize(folder, _close_all, held)
        return FolderDisk(folder)


def _close_all(folders: Iterable[HeldFolder]) -> None:
    for folder in folders:
        folder.close()


class SmallParts(SmallContents):
    """Small contents of a folder of this node, each an open part.

    Args:
        disk: where they are written.
    """

    def __init__(self, disk: DiskFolder) -> None:
        self._disk = disk
        self._parts: list[PartFile] = []
        self._last = disk.contents.last_folder()
        with disk.steps.read("opening", disk.parts.entry):
            # Before the first part is written: what fails from now on is reported to this descriptor.
            self._opened_before = os.open(".", FOLDER, dir_fd=disk.parts.fd)

    def write(self, content: ContentId, data: bytes | memoryview, expected: Digest) -> None:
        part = PartFile.open_new(self._disk, content, expected, self._last)
        try:
            part.write(data)
            part.checked_digest(None)
        except BaseException:
            with contextlib.suppress(DiskError):
                part.discard()
            raise
        self._parts.append(part)

    def publish(self) -> list[ContentId]:
        publish_many([(part, None) for part in self._parts], opened_before=self._opened_before)
        published = [part.content for part in self._parts]
        self._parts.clear()
        return published

    def close(self) -> None:
        for part in self._parts:
            part.close()
        self._parts.clear()
        self._last.close()
        if self._opened_before >= 0:
            os.close(self._opened_before)
            self._opened_before = -1
