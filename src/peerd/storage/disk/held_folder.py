"""Folders of a disk, held by their descriptors: names are single names in them, and links are never followed.

Somebody else's program with the right to write on the disk can put a link, a pipe or a folder where a file belongs, at
any time. A descriptor stays what it is, so everything is reached from the descriptor of the disk's root, name after
name.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from typing import Final, Self

from peerd.storage.disk.errors import UnexpectedEntry, disk_error

Marker = Callable[[str], None]
"""Called as ``marker("before link")`` and ``marker("after link")`` at each step that changes the disk."""

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: the opening of a pipe does not wait for its other end.
FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600


def mark_nothing(phase: str) -> None:
    """The marker when none is passed."""


class DiskSteps:
    """Executes the steps on one disk: errors of the system become errors of the disk, and a marker is called."""

    def __init__(self, disk: str, marker: Marker = mark_nothing) -> None:
        self.disk = disk
        self._marker = marker

    def change(self, action: str, entry: str) -> DiskStep:
        """A step that changes the disk, executed by ``with``."""
        return DiskStep(self.disk, action, entry, self._marker)

    def read(self, action: str, entry: str) -> DiskStep:
        """A step that changes nothing, executed by ``with``."""
        return DiskStep(self.disk, action, entry, None)


class DiskStep:
    """A step on a disk; see `DiskSteps`. No generator, because a small content takes twenty of them.

    Args:
        disk: its path.
        action: what is done.
        entry: to what, below the disk's folder.
        marker: called before it, and after it if it has succeeded.
    """

    __slots__ = ("_action", "_disk", "_entry", "_marker")

    def __init__(self, disk: str, action: str, entry: str, marker: Marker | None) -> None:
        self._disk = disk
        self._action = action
        self._entry = entry
        self._marker = marker

    def __enter__(self) -> None:
        if self._marker is not None:
            self._marker(f"before {self._action}")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise disk_error(error, self._disk, self._action, self._entry) from error
        if self._marker is not None and error is None:
            self._marker(f"after {self._action}")


class HeldFolder:
    """A folder of a disk, closed at the end of ``with``.

    Args:
        fd: its descriptor, which this object closes.
        entry: its path below the root of the disk, for errors.
        steps: of the disk.
    """

    def __init__(self, fd: int, entry: str, steps: DiskSteps) -> None:
        self.entry = entry
        self.steps = steps
        self._fd = fd

    @property
    def fd(self) -> int:
        """The descriptor of the folder. Raises ValueError when it is closed: that is no failure of the disk."""
        if self._fd < 0:
            raise ValueError(f"{self.entry or 'the root'} of the disk {self.steps.disk} is closed")
        return self._fd

    def path_of(self, name: str) -> str:
        """The path of a name in it, below the root of the disk."""
        return f"{self.entry}/{name}" if self.entry else name

    def enter(self, name: str) -> HeldFolder | None:
        """Hold a folder in it; None when there is none of that name."""
        with self.steps.read("opening", self.path_of(name)), contextlib.suppress(FileNotFoundError):
            return HeldFolder(os.open(name, FOLDER, dir_fd=self.fd), self.path_of(name), self.steps)
        return None

    def enter_or_make(self, name: str) -> HeldFolder:
        """Hold a folder in it, which is made if there is none."""
        while (folder := self.enter(name)) is None:
            self.make(name)
        return folder

    def make(self, name: str) -> None:
        """Make a folder in it, if there is nothing of that name."""
        with self.steps.change("make folder", self.path_of(name)), contextlib.suppress(FileExistsError):
            os.mkdir(name, FOLDER_MODE, dir_fd=self.fd)

    def open(self, name: str, flags: int = os.O_RDONLY) -> int | None:
        """The descriptor of a regular file in it; None when there is none of that name.

        Raises:
            UnexpectedEntry: it is no regular file.
        """
        with self.steps.read("opening", self.path_of(name)), contextlib.suppress(FileNotFoundError):
            fd = os.open(name, flags | FILE, FILE_MODE, dir_fd=self.fd)
            if stat.S_ISREG(os.fstat(fd).st_mode):
                return fd
            os.close(fd)
            raise UnexpectedEntry(self.steps.disk, "opening", self.path_of(name), "not a regular file")
        return None

    def create(self, name: str) -> int | None:
        """The descriptor of a new file in it, for reading and writing; None when there is something of that name."""
        with self.steps.change("open part", self.path_of(name)), contextlib.suppress(FileExistsError):
            return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | FILE, FILE_MODE, dir_fd=self.fd)
        return None

    def status(self, name: str) -> os.stat_result | None:
        """The status of a name in it, of a link its own; None when there is none."""
        with self.steps.read("reading the status", self.path_of(name)), contextlib.suppress(FileNotFoundError):
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        return None

    def file_status(self, name: str) -> os.stat_result | None:
        """The status of a regular file in it; None when there is none of that name.

        Raises:
            UnexpectedEntry: it is no regular file.
        """
        status = self.status(name)
        if status is not None and not stat.S_ISREG(status.st_mode):
            raise UnexpectedEntry(self.steps.disk, "opening", self.path_of(name), "not a regular file")
        return status

    def names(self) -> list[str]:
        """The names in it, sorted."""
        with self.steps.read("listing", self.entry or "."):
            # A descriptor of its own, because threads that share one share its position in the list.
            fd = os.open(".", FOLDER, dir_fd=self.fd)
            try:
                return sorted(os.listdir(fd))  # noqa: PTH208 - no path but a descriptor
            finally:
                os.close(fd)

    def sync(self) -> None:
        """Make the names in it durable."""
        with self.steps.change("fsync folder", self.entry or "."):
            os.fsync(self.fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def same_file(one: os.stat_result, other: os.stat_result) -> bool:
    """Whether two statuses are of one file, perhaps by two names."""
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
