"""Folders and files held by their descriptors: what was checked is what is used, whatever becomes of its name.

A name can be given to something else between a check and a use, by everybody who may write in a folder above it. A
descriptor cannot. So a folder is opened once and everything in it is reached from there, one name at a time and never
through a link; and a program that is to read or write a file is handed the open file: ``/proc/self/fd/7`` opens what
descriptor 7 is, with a position of its own.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Self

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_ENTRY = os.O_NOFOLLOW | os.O_CLOEXEC


class Descriptor:
    """A descriptor, closed at the end of ``with``."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @property
    def status(self) -> os.stat_result:
        """What it is now."""
        return os.fstat(self.fd)

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode: the same for every name of the same thing, for as long as it is held."""
        return identity_of(self.status)

    def close(self) -> None:
        """Close it; again is harmless."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class FolderDescriptor(Descriptor):
    """A folder. All names are single ones in it; a link of such a name is never followed. Everything raises OSError."""

    @classmethod
    def at(cls, path: Path) -> Self:
        """Hold the folder at a path that is to be trusted: links in it are followed."""
        return cls(os.open(path, _FOLDER))

    def enter(self, name: str, *, make: int | None = None) -> FolderDescriptor:
        """Hold a folder in it; ``make`` is the mode with which it is made when it is not there."""
        if make is not None:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, make, dir_fd=self.fd)
        return FolderDescriptor(os.open(name, _FOLDER | _ENTRY, dir_fd=self.fd))

    def open(self, name: str) -> FileDescriptor:
        """Open a file to read. A pipe in its place is not waited for: look at ``status`` before it is used."""
        return FileDescriptor(os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | _ENTRY, dir_fd=self.fd))

    def create(self, name: str) -> FileDescriptor:
        """Make a file that is not there yet, to write and to read."""
        return FileDescriptor(os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _ENTRY, 0o666, dir_fd=self.fd))

    def look_up(self, name: str) -> os.stat_result | None:
        """Return what has a name in it, a link as the link; None when nothing has."""
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def link_target(self, name: str) -> str | None:
        """Return where a link leads; None for what is no link, or not there."""
        status = self.look_up(name)
        return os.readlink(name, dir_fd=self.fd) if status is not None and stat.S_ISLNK(status.st_mode) else None

    def names(self) -> list[str]:
        """Return the names in it."""
        with self.readable() as folder:
            return os.listdir(folder.fd)  # noqa: PTH208 - no path but a descriptor

    def readable(self) -> Descriptor:
        """Hold the same folder once more so that it can be listed, locked and synced; needs the right to read it."""
        return Descriptor(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.fd))


class FileDescriptor(Descriptor):
    """An open file."""

    @classmethod
    def at(cls, path: Path) -> Self:
        """Open the file at a path that is to be trusted, to read."""
        return cls(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    @property
    def address(self) -> str:
        """What a program opens that has inherited the descriptor; it then reads from the start."""
        return f"/proc/self/fd/{self.fd}"

    def reader(self) -> io.BufferedReader:
        """Open it anew, to read from the start; the reader outlives this one."""
        return open(self.address, "rb")  # noqa: PTH123 - no path but a descriptor


def identity_of(status: os.stat_result) -> tuple[int, int]:
    """Return device and inode."""
    return status.st_dev, status.st_ino
