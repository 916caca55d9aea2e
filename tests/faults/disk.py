"""The disk that SQLite's file lies on, or that of run directories, and how it becomes full.

As root, it is a small file system of its own, with a file that takes what is left: ENOSPC, as in life. Without root no
file system can be mounted; then every process of the nodes is forbidden to make any file larger than the database is
(RLIMIT_FSIZE, set from outside): EFBIG, and SQLite says that the disk failed.
"""

from __future__ import annotations

import errno
import os
import resource
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final

SIZE: Final = 512 * 1024 * 1024
PIECE: Final = 4096


class Disk(ABC):
    """Where the database lies."""

    kind: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def fill(self) -> None:
        """Let nothing grow any more."""

    @abstractmethod
    def free(self) -> None:
        """Let there be space again."""

    def close(self) -> None:
        """Give the disk up."""
        self.free()


class SmallFileSystem(Disk):
    """A tmpfs, which only root may mount."""

    kind = "a full file system (ENOSPC)"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._mount("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs")
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        with self._ballast.open("wb", buffering=0) as file:
            free = os.statvfs(self.folder)
            with suppress(OSError):  # another process was quicker: the rest is allocated in pieces
                os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize)
            file.seek(0, os.SEEK_END)
            try:
                while True:
                    file.write(bytes(PIECE))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        super().close()
        self._mount("umount", "--lazy")

    def _mount(self, *command: str) -> None:
        subprocess.run([*command, str(self.folder)], check=True, capture_output=True)


class SizeLimit(Disk):
    """A limit on the size of files, for processes that run already and for what they start.

    Args:
        folder: where the database lies.
        processes: the process ids of all that write to it.
    """

    kind = "a limit on the size of files (RLIMIT_FSIZE)"

    def __init__(self, folder: Path, processes: Callable[[], Iterable[int]]) -> None:
        super().__init__(folder)
        self._processes = processes

    def fill(self) -> None:
        self._limit(max((file.stat().st_size for file in self.folder.glob("*.sqlite*")), default=0))

    def free(self) -> None:
        self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        for _ in range(2):  # twice: what was started meanwhile by one that had no limit yet has none either
            for pid in self._processes():
                with suppress(ProcessLookupError):
                    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, most))


def open_file_system(folder: Path) -> SmallFileSystem | None:
    """A file system of its own at a new folder; None where this machine allows none."""
    folder.mkdir()
    with suppress(OSError, subprocess.CalledProcessError):
        return SmallFileSystem(folder)
    return None


def open_disk(folder: Path, processes: Callable[[], Iterable[int]]) -> Disk:
    """A disk that can become full, in the way that this machine allows."""
    return open_file_system(folder) or SizeLimit(folder, processes)
