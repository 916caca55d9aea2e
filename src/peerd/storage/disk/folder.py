"""A disk that is open: its contents by id, and nothing outside of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from peerd.domain.quoting import quoted
from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.contents import ContentsFolder
from peerd.storage.disk.errors import ContentMissing, DiskReadOnly, DiskReplaced, NotADisk, PartInUse, UnexpectedEntry
from peerd.storage.disk.held_folder import DiskSteps, HeldFolder, Marker, mark_nothing, same_file
from peerd.storage.disk.identity import FOLDERS, DiskIdentity, check_identity, open_root
from peerd.storage.disk.open_disk import DiskUsage
from peerd.storage.disk.walk import (
    PART_SUFFIX,
    REASON,
    StoredContent,
    StoredPart,
    UnknownEntry,
    stored_parts,
    unknown_entries,
    walk_contents,
)


class DiskFolder:
    """A disk that is open; closed at the end of ``with``. Several threads may use it at once, until it is closed.

    >>> import tempfile
    >>> from peerd.storage.disk.content_id import ContentId
    >>> from peerd.storage.disk.identity import create_disk
    >>> from peerd.storage.disk.part_file import PartFile
    >>> with tempfile.TemporaryDirectory() as path:
    ...     identity = create_disk(Path(path), cluster="0" * 32)
    ...     with DiskFolder.open(Path(path), identity) as disk, PartFile.open(disk, ContentId(7)) as part:
    ...         part.write(b"bytes")
    ...         digest = part.publish()
    ...         disk.size(ContentId(7))
    5
    """

    def __init__(self, path: Path, identity: DiskIdentity, root: HeldFolder, folders: dict[str, HeldFolder]) -> None:
        self.path = path
        self.identity = identity
        self.root = root
        self.steps = root.steps
        self.contents = ContentsFolder(folders["contents"])
        self.parts = folders["parts"]
        self.quarantine_folder = folders["quarantine"]

    @classmethod
    def open(cls, path: Path, identity: DiskIdentity, *, at: Marker = mark_nothing) -> Self:
        """Open a disk. Nothing is written.

        Args:
            path: of its folder.
            identity: that it must have.
            at: called before and after each step that changes the disk, for tests of interruptions.

        Raises:
            NotADisk: the folder is no disk, or one of its folders is missing.
            WrongDisk: it is another disk.
            DiskError: it could not be read.
        """
        with contextlib.ExitStack() as held:
            root = held.enter_context(open_root(path, DiskSteps(str(path), at)))
            check_identity(root, identity)
            folders = {name: held.enter_context(_held(root, name)) for name in FOLDERS}
            held.pop_all()  # they stay open
            return cls(path, identity, root, folders)

    def check(self, *, writable: bool = False) -> None:
        """Check that the path still leads to this disk; cheap enough to be called often.

        Args:
            writable: check too that its file system is not read-only.

        Raises:
            DiskReplaced: the path, or one of the disk's folders, leads to something else.
            NotADisk, WrongDisk: the identity has changed.
            DiskReadOnly: as asked for by `writable`.
            DiskError: it could not be read.
        """
        with self.steps.read("reading the status", "."):
            try:
                named = self.path.stat()
            except (FileNotFoundError, NotADirectoryError):
                raise DiskReplaced(str(self.path)) from None
            if not same_file(named, os.fstat(self.root.fd)):
                raise DiskReplaced(str(self.path))
        check_identity(self.root, self.identity)
        for folder in (self.contents.folder, self.parts, self.quarantine_folder):
            status = self.root.status(folder.entry)
            if status is None or not same_file(status, os.fstat(folder.fd)):
                raise DiskReplaced(str(self.path / folder.entry))
        if writable:
            with self.steps.read("reading the status", "."):
                if os.fstatvfs(self.root.fd).f_flag & os.ST_RDONLY:
                    raise DiskReadOnly(str(self.path), "check", ".", "mounted read-only")

    def open_content(self, content: ContentId) -> int:
        """A descriptor of a content, for reading; the caller closes it.

        Raises:
            ContentMissing: there is none of this id.
            UnexpectedEntry: what has its name is no regular file.
            DiskError: it could not be opened.
        """
        fd = self.contents.open(content)
        if fd is None:
            raise ContentMissing(str(self.path), str(content))
        return fd

    def size(self, content: ContentId) -> int:
        """The bytes of a content. Raises as `open_content`."""
        status = self.contents.status(content)
        if status is None:
            raise ContentMissing(str(self.path), str(content))
        return status.st_size

    def remove(self, content: ContentId) -> None:
        """Remove a content, durably. Raises as `open_content`."""
        with self._folder_of(content) as folder:
            with self.steps.change("unlink content", folder.path_of(str(content))):
                try:
                    os.unlink(str(content), dir_fd=folder.fd)
                except FileNotFoundError:
                    raise ContentMissing(str(self.path), str(content)) from None
            folder.sync()
        self.contents.remove_if_empty(content)

    def quarantine(self, content: ContentId, reason: str, now: float, *, fd: int | None = None) -> str:
        """Move a bad content out of the way, durably.

        Args:
            content: which one.
            reason: a word that becomes a part of its name: "mismatch".
            now: the time, in seconds of Unix time, which becomes a part of its name.
            fd: where its badness was found: if another file has its name by now, that is left alone.

        Returns:
            Its name in quarantine/.

        Raises:
            ContentMissing: there is none of this id, or another one than `fd`.
            ValueError: the reason is no word of lower-case letters, digits and hyphens.
            DiskError: as `open_content`, and it could not be moved.
        """
        if not REASON.fullmatch(reason):
            raise ValueError(f"{quoted(reason)} is no reason: 1 to 32 lower-case letters, digits and hyphens")
        with self._folder_of(content) as folder:
            status = folder.file_status(str(content))
            if status is None or (fd is not None and not same_file(status, os.fstat(fd))):
                raise ContentMissing(str(self.path), str(content))
            name = self._free_quarantine_name(content, reason, int(now))
            with self.steps.change("move to quarantine", folder.path_of(str(content))):
                try:
                    os.rename(str(content), name, src_dir_fd=folder.fd, dst_dir_fd=self.quarantine_folder.fd)
                except FileNotFoundError:
                    raise ContentMissing(str(self.path), str(content)) from None
            self.quarantine_folder.sync()  # its new name before the end of its old one
            folder.sync()
        self.contents.remove_if_empty(content)
        return name

    def restore(self, content: ContentId, name: str, fd: int) -> bool:
        """Bring an entry of quarantine back, durably; whether nothing else has the name of the content.

        Args:
            content: its id.
            name: in quarantine.
            fd: of the entry, which was verified.

        Raises:
            DiskError: it could not be moved.
        """
        if not self.contents.link(fd, content):
            return False
        self.contents.sync([content])  # its new name before the end of its old one
        self.remove_from_quarantine(name)
        self.quarantine_folder.sync()
        return True

    def quarantined(self) -> list[str]:
        """The names in quarantine. Raises DiskError."""
        return self.quarantine_folder.names()

    def remove_from_quarantine(self, name: str) -> None:
        """Remove an entry of quarantine; if it is not there, nothing is done. Raises DiskError."""
        if not self.quarantine_folder.file_status(name):
            return
        with self.steps.change("unlink quarantined", f"quarantine/{name}"), contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.quarantine_folder.fd)

    def usage(self) -> DiskUsage:
        """The space of its file system. Raises DiskError."""
        with self.steps.read("reading the free space", "."):
            found = os.fstatvfs(self.root.fd)
        return DiskUsage(
            found.f_blocks * found.f_frsize,
            found.f_bavail * found.f_frsize,
            found.f_favail if found.f_files else None,
        )

    def walk(self, after: ContentId | None = None, *, batch: int = 1000) -> Iterator[list[StoredContent]]:
        """The contents of the folder in order of id, in lists of `batch`.

        Args:
            after: begin after this id: the last one of an earlier walk.
            batch: contents in one list.

        Raises:
            DiskError: a folder could not be read.
        """
        return walk_contents(self.contents.folder, after, batch)

    def unknown_entries(self) -> Iterator[UnknownEntry]:
        """The names on it that are no contents, no parts and nothing else of a disk. Raises as `walk`."""
        return unknown_entries(self.root)

    def old_parts(self, before: float) -> Iterator[StoredPart]:
        """The parts of the folder that were last written before a time, in seconds of Unix time. Raises as `walk`."""
        return (part for part in stored_parts(self.parts) if part.changed_at < before)

    def discard_part(self, content: ContentId) -> None:
        """Remove a part that no writer has open; when there is none, nothing is done.

        Raises:
            PartInUse: a writer has it open.
            UnexpectedEntry: what has its name is no regular file.
            DiskError: it could not be removed.
        """
        name = f"{content}{PART_SUFFIX}"
        fd = self.parts.open(name)
        if fd is None:
            return
        try:
            self.lock_part(fd, content)
            self.remove_part(fd, content)
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def without_writer(self, content: ContentId) -> Iterator[None]:
        """No part of this content can be written or published within ``with``; one that was left is removed.

        Raises:
            PartInUse: a writer has it open.
            DiskError: it could not be locked.
        """
        name = f"{content}{PART_SUFFIX}"
        with self.steps.change("open part", self.parts.path_of(name)):
            fd = self.parts.open(name, os.O_RDWR | os.O_CREAT)
        if fd is None:  # ENOENT: the folder parts/ itself was removed
            raise DiskReplaced(str(self.path))
        try:
            self.lock_part(fd, content)
            if not self.names_part(fd, content):  # another one was made since
                raise PartInUse(str(self.path), str(content))
            yield
            self.remove_part(fd, content)
        finally:
            os.close(fd)

    def lock_part(self, fd: int, content: ContentId) -> None:
        """Lock a part that is open, for the writer of this descriptor. Raises PartInUse when another has it."""
        with self.steps.read("locking", self.parts.path_of(f"{content}{PART_SUFFIX}")):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PartInUse(str(self.path), str(content)) from None

    def remove_part(self, fd: int, content: ContentId, *, published: bool = False) -> None:
        """Remove the name of a part that is open and locked.

        Args:
            fd: its descriptor; when its name leads to another file, that is left.
            content: its id.
            published: it is a content, and durably.
        """
        if not published and os.fstat(fd).st_nlink > 1:
            status = self.contents.status(content)
            if status is not None and same_file(status, os.fstat(fd)):
                # Its publisher ended before it made the name durable; without the part nothing would show that.
                self.contents.sync([content])
        name = f"{content}{PART_SUFFIX}"
        if self.names_part(fd, content):
            with self.steps.change("unlink part", self.parts.path_of(name)), contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self.parts.fd)

    def names_part(self, fd: int, content: ContentId) -> bool:
        """Whether the name of a part leads to this descriptor: it may have been removed before the lock was granted."""
        status = self.parts.status(f"{content}{PART_SUFFIX}")
        return status is not None and same_file(status, os.fstat(fd))

    def close(self) -> None:
        """Close its descriptors. Those that `open_content` has returned stay open."""
        for folder in (self.contents.folder, self.parts, self.quarantine_folder, self.root):
            folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _folder_of(self, content: ContentId) -> HeldFolder:
        """Hold the folder of a content that exists."""
        folder = self.contents.folder_of(content)
        if folder is None:
            raise ContentMissing(str(self.path), str(content))
        try:
            if folder.file_status(str(content)) is None:
                raise ContentMissing(str(self.path), str(content))
        except BaseException:
            folder.close()
            raise
        return folder

    def _free_quarantine_name(self, content: ContentId, reason: str, second: int) -> str:
        while self.quarantine_folder.status(name := f"{content}.{reason}.{second}") is not None:
            second += 1
        return name


def _held(root: HeldFolder, name: str) -> HeldFolder:
    try:
        folder = root.enter(name)
    except UnexpectedEntry:
        raise NotADisk(root.steps.disk, f"{name} is no folder") from None
    if folder is None:
        raise NotADisk(root.steps.disk, f"the folder {name} is missing")
    return folder
