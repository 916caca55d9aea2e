"""The folder of the SQLite file: one that is kept (-b), or one in memory that ends with the process.

A process holds a lock on its folder as long as it runs. So a second one refuses to start in it, and the folder of a
process that was killed is recognized by its lock being free.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from peerd.gateway.standalone.flags import PROGRAM, ProgramExit

DATABASE: Final = "peerd.sqlite"
LOCK: Final = "lock"
"""beanstalkd locks a file of this name in the same way, so that the two never serve one folder together."""
LOG_OF_BEANSTALKD: Final = "binlog.*"
MEMORY: Final = Path("/dev/shm")  # noqa: S108 - folders in it are created with mode 0700
MEMORY_NEEDED: Final = 2**30
"""Free bytes there, without which the folder for temporary files is used: a container often has 64 MiB of it."""
MEMORY_PREFIX: Final = f"{PROGRAM}-"
TRIES: Final = 10
CANNOT_USE_FOLDER: Final = 10
"""The exit status where the folder cannot be used, as of beanstalkd."""


class JobFolder:
    """A folder that this process has locked.

    Attributes:
        path: of the folder.
        is_in_memory: it is removed by `close`.
    """

    def __init__(self, path: Path, lock: int, *, is_in_memory: bool) -> None:
        self.path = path
        self.is_in_memory = is_in_memory
        self._lock = lock

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.path / DATABASE

    def foreign_logs(self) -> list[str]:
        """The names of files in which beanstalkd itself has left jobs."""
        return sorted(file.name for file in self.path.glob(LOG_OF_BEANSTALKD))

    def close(self) -> None:
        """Remove a folder in memory, and release the lock. Close the database before."""
        if self.is_in_memory:
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def open_folder(path: str) -> JobFolder:
    """Lock a folder that is kept.

    Raises:
        ProgramExit: there is no such folder, it cannot be written, or another process serves it.
    """
    folder = Path(path).absolute()
    try:
        return JobFolder(folder, _lock(folder), is_in_memory=False)
    except OSError as error:
        in_use = error.errno in {errno.EACCES, errno.EAGAIN} and os.access(folder, os.W_OK | os.X_OK)
        problem = "another process serves it" if in_use else error.strerror
        raise ProgramExit(CANNOT_USE_FOLDER, f"{PROGRAM}: cannot use the folder {path}: {problem}\n") from error


def open_folder_in_memory() -> JobFolder:
    """Create a folder in memory, or among the temporary files; those of processes that were killed are removed.

    Raises:
        ProgramExit: it cannot be locked.
    """
    parent = MEMORY if _has_memory() else Path(tempfile.gettempdir())
    remove_abandoned(parent)
    for _ in range(TRIES):
        folder = Path(tempfile.mkdtemp(prefix=MEMORY_PREFIX, dir=parent))
        with suppress(OSError):  # another process took it for abandoned, before it was locked
            return JobFolder(folder, _lock(folder), is_in_memory=True)
    raise ProgramExit(CANNOT_USE_FOLDER, f"{PROGRAM}: cannot lock a folder in {parent}\n")


def _has_memory() -> bool:
    try:
        space = os.statvfs(MEMORY)
    except OSError:
        return False
    return os.access(MEMORY, os.W_OK | os.X_OK) and space.f_bavail * space.f_frsize >= MEMORY_NEEDED


def remove_abandoned(parent: Path) -> None:
    """Remove this user's folders in memory whose processes have ended."""
    for folder in _own_folders(parent):
        with suppress(OSError):
            lock = _lock(folder)
            try:
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _own_folders(parent: Path) -> Iterator[Path]:
    for folder in parent.glob(f"{MEMORY_PREFIX}*"):
        with suppress(OSError):
            if folder.lstat().st_uid == os.getuid() and folder.is_dir() and not folder.is_symlink():
                yield folder


def _lock(folder: Path) -> int:
    """The descriptor of the folder's lock file, locked.

    Raises:
        OSError: another process holds the lock, or has removed the folder meanwhile, or it cannot be written.
    """
    path = folder / LOCK
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), path.stat()):
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
