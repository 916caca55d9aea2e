"""The errors of disks: one tree. Every OSError becomes one of them in `disk_error`, and nowhere else."""

from __future__ import annotations

import errno
import os
from typing import Final

from peerd.domain.errors import PeerdError
from peerd.domain.quoting import quoted

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_WRONG_KIND: Final = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO})
_OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})


class DiskError(PeerdError):
    """The root of all errors of disks."""


class _FailedStep(DiskError):
    """`action` on `entry`, a path below `disk`, has failed; `problem` is the text of the system."""

    _sentence: str

    def __init__(self, disk: str, action: str, entry: str, problem: str) -> None:
        self.disk = disk
        self.action = action
        self.entry = entry
        self.problem = problem
        super().__init__(self._sentence.format(disk=quoted(disk), step=f"{action} of {quoted(entry)}: {problem}"))


class DiskOutOfSpace(_FailedStep):
    """There is no space, no inode or no quota left."""

    _sentence = "the disk {disk} is full ({step}); remove files, raise the quota, or add a disk"


class DiskReadOnly(_FailedStep):
    """The file system is mounted read-only, or became so after an error."""

    _sentence = "the disk {disk} is read-only ({step}); look into the kernel's log, then mount it for writing"


class DiskFailed(_FailedStep):
    """The system could not do it: an input/output error, a missing permission, a file system without hard links."""

    _sentence = "the disk {disk} has failed ({step}); look into the kernel's log and check the disk and its permissions"


class DescriptorsExhausted(_FailedStep):
    """The process, or the machine, has too many open files; the disk itself is in order."""

    _sentence = "too many files are open, on the disk {disk} too ({step}); raise the limit of open files (LimitNOFILE)"


class UnexpectedEntry(_FailedStep):
    """A link, a folder, a pipe … is where a file or a folder of the disk belongs. It was not followed or changed."""

    _sentence = "the disk {disk} has an entry of a wrong kind ({step}); find out what put it there, and remove it"


class NotADisk(DiskError):
    """`disk` is no disk: there is no folder, no identity file, or one that cannot be right. `problem` says which."""

    def __init__(self, disk: str, problem: str) -> None:
        self.disk = disk
        self.problem = problem
        super().__init__(
            f"{quoted(disk)} is no disk of a cluster: {problem}; mount the right file system, or make a new disk in an "
            "empty folder"
        )


class WrongDisk(DiskError):
    """The disk at `disk` is another one, or of another cluster: `expected` and `found` are 'disk … of cluster …'."""

    def __init__(self, disk: str, expected: str, found: str) -> None:
        self.disk = disk
        self.expected = expected
        self.found = found
        super().__init__(f"at {quoted(disk)} is {found}, expected is {expected}; mount the right file system")


class DiskReplaced(DiskError):
    """The path `disk` leads to another folder than the one that was opened: unmounted, or something mounted over it."""

    def __init__(self, disk: str) -> None:
        self.disk = disk
        super().__init__(
            f"{quoted(disk)} is not the folder any more that was opened: it was unmounted, mounted over or moved; "
            "mount it again and open the disk again"
        )


class DiskNotEmpty(DiskError):
    """A disk can be made in an empty folder only; `entry` is a name that is in it."""

    def __init__(self, disk: str, entry: str) -> None:
        self.disk = disk
        self.entry = entry
        super().__init__(f"{quoted(disk)} is not empty, it contains {quoted(entry)}; choose an empty folder")


class RemoteDiskError(DiskError):
    """A disk that is reached over a network did not do what it was asked for: this says nothing of its contents."""


class DiskBusy(RemoteDiskError):
    """Such a disk is there, and takes no more requests for now."""


class ContentMissing(DiskError, LookupError):
    """The disk has no content of this id."""

    def __init__(self, disk: str, content: str) -> None:
        self.disk = disk
        self.content = content
        super().__init__(f"the disk {quoted(disk)} has no content {content}; read it from another copy")


class ContentExists(DiskError):
    """The disk has a content of this id already; it was not changed. `problem` says what of it is known."""

    def __init__(self, disk: str, content: str, problem: str) -> None:
        self.disk = disk
        self.content = content
        self.problem = problem
        super().__init__(
            f"the disk {quoted(disk)} has a content {content} already: {problem}; verify it, and keep or quarantine it"
        )


class ContentMismatch(DiskError, ValueError):
    """The bytes are not those that are expected.

    `chunks` are the indices of the wrong chunks, as far as known; `content` is the id, None of an open file.
    """

    def __init__(self, problem: str, chunks: tuple[int, ...] = (), content: str | None = None) -> None:
        self.problem = problem
        self.chunks = chunks
        self.content = content
        super().__init__(
            f"the content{f' {content}' if content else ''} is not the expected one: {problem}; "
            "discard it, and read it from another copy"
        )


class DigestRequired(DiskError):
    """A part that was resumed can be published against an expected digest only."""

    def __init__(self, content: str) -> None:
        self.content = content
        super().__init__(
            f"the part {content} was resumed: after a power cut its first bytes may be wrong, so that it is published "
            "against an expected digest only; pass one, or discard the part and write it anew"
        )


class PartInUse(DiskError):
    """Another writer has the part open."""

    def __init__(self, disk: str, content: str) -> None:
        self.disk = disk
        self.content = content
        super().__init__(
            f"the part {content} on the disk {quoted(disk)} is being written by another process or thread; try later"
        )


class HashingStopped(DiskError):
    """Reading a content was stopped by its caller after `position` bytes."""

    def __init__(self, position: int) -> None:
        self.position = position
        super().__init__(f"hashing was stopped after {position} bytes; begin it again")


def disk_error(error: OSError, disk: str, action: str, entry: str) -> DiskError:
    """The error of a disk that an OSError means.

    Args:
        error: as the system raised it.
        disk: path of the disk.
        action: what was done, as a noun: "write".
        entry: on what, a path below the disk.
    """
    number = error.errno or 0
    problem = os.strerror(number) if number else str(error)
    kind: type[_FailedStep] = DiskFailed
    if number in _FULL:
        kind = DiskOutOfSpace
    elif number == errno.EROFS:
        kind = DiskReadOnly
    elif number in _WRONG_KIND:
        kind = UnexpectedEntry
    elif number in _OUT_OF_DESCRIPTORS:
        kind = DescriptorsExhausted
    return kind(disk, action, entry, problem)
