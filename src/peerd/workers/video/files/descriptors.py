"""Folders and files held by their descriptors, so that a checked file is the one that is used.

Another user with write permission in a folder above can give a name to another file between a check and a use; a
descriptor stays the same. So a folder is opened once and everything in it is reached from there, one name at a time and
never through a link; and a program inherits the open file: ``/proc/self/fd/7`` opens descriptor 7, with a position of
its own.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
from pathlib import Path
from typing import Self

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_ENTRY = os.O_NOFOLLOW | os.O_CLOEXEC


class Descriptor:
    """A descriptor, closed at the end of ``with``."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @property
    def status(self) -> os.stat_result:
        return os.fstat(self.fd)

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode: the same for every name of it, while it is held."""
        return identity_of(self.status)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FolderDescriptor(Descriptor):
    """A folder. Names are single names in it; links are never followed. All methods raise OSError."""

    @classmethod
    def at(cls, path: Path) -> Self:
        """Hold the folder at a trusted path: links in it are followed."""
        return cls(os.open(path, _FOLDER))

    def enter(self, name: str, *, make: int | None = None) -> FolderDescriptor:
        """Hold a folder in it; with ``make``, it is made with this mode if it does not exist."""
        if make is not None:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, make, dir_fd=self.fd)
        return FolderDescriptor(os.open(name, _FOLDER | _ENTRY, dir_fd=self.fd))

    def open(self, name: str) -> FileDescriptor:
        """Open a file for reading, without waiting if it is a pipe: check ``status`` before using it."""
        return FileDescriptor(os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | _ENTRY, dir_fd=self.fd))

    def create(self, name: str) -> FileDescriptor:
        """Make a new file, for writing and reading."""
        return FileDescriptor(os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _ENTRY, 0o666, dir_fd=self.fd))

    def look_up(self, name: str) -> os.stat_result | None:
        """Return the status of a name in it, of a link its own; None when there is none."""
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def link_target(self, name: str) -> str | None:
        """Return the target of a link; None when there is none of that name."""
        status = self.look_up(name)
        return os.readlink(name, dir_fd=self.fd) if status is not None and stat.S_ISLNK(status.st_mode) else None

    def readable(self) -> Descriptor:
        """Hold the same folder once more for listing, locking and syncing; needs the right to read it."""
        return Descriptor(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.fd))


class FileDescriptor(Descriptor):
    @classmethod
    def at(cls, path: Path) -> Self:
        """Open the file at a trusted path, for reading."""
        return cls(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    @property
    def address(self) -> str:
        """The path by which a program that has inherited the descriptor opens it, at the start."""
        return f"/proc/self/fd/{self.fd}"

    def reader(self) -> io.BufferedReader:
        """Open it again, for reading from the start; it stays open when this one is closed."""
        return open(self.address, "rb")  # noqa: PTH123 - no path but a descriptor


def identity_of(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
