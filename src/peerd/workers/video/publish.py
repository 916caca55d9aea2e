"""A private folder per attempt, and the one moment in which its output becomes visible.

Invariant: a name below the media directory either does not exist, or is a whole, verified file. The output is
written in a folder that no task may name, on the same file system, and moved by one rename.

A folder is locked while its owner lives; the lock ends with the process, however it ends. So whatever is unlocked
is abandoned, and the next task on this file system removes it. The folders of earlier attempts at the same task are
removed even if locked: we hold the newer claim, and an owner that is still about (frozen, then woken) must not
publish any more; each attempt has its own name, so that it cannot mistake our files for its own.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from peerd.workers.video.errors import DiskFull, Misconfigured, PublishFailed

_TRIES = 5
_YOUNG_SECONDS = 60.0  # between mkdir and lock a new folder looks abandoned


class PrivateFolder:
    """Use it with ``with``; it is gone at the end, whatever the end."""

    def __init__(self, parent: Path, task: object) -> None:
        self._parent = parent
        self._task = f"task-{task}."
        self._lock = -1
        self.path = parent

    def __enter__(self) -> Self:
        try:
            self.path = self._make()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(directory=self._parent.parent) from error
            raise Misconfigured(reason=f"no folder can be made in {self._parent} ({error})") from error
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._remove_left_behind()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        with contextlib.suppress(OSError):  # another task is at work there
            self._parent.rmdir()

    def link(self, source: Path) -> Path:
        """Return a name of our own for a source."""
        place = self.path / "source"
        place.symlink_to(source)
        return place

    def require_same_file_system(self, folder: Path) -> None:
        """An output can only be moved atomically within a file system. Raises Misconfigured."""
        if self.path.stat().st_dev != folder.stat().st_dev:
            raise Misconfigured(reason=f"scratch {self._parent} is not on the file system of {folder}")

    def _make(self) -> Path:
        for _ in range(_TRIES):
            self._parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._parent / f"{self._task}{secrets.token_hex(6)}"
            try:
                path.mkdir(mode=0o700)
            except FileNotFoundError:  # the last task there has just removed the parent
                continue
            return path
        raise FileNotFoundError(errno.ENOENT, "it vanishes again and again", str(self._parent))

    def _remove_left_behind(self) -> None:
        for folder in self._parent.iterdir():
            if folder == self.path or not folder.name.startswith("task-"):
                continue
            if folder.name.startswith(self._task) or _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    try:
        if time.time() - folder.stat().st_mtime < _YOUNG_SECONDS:
            return False
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def publish(made: Path, place: Path, name: str) -> None:
    """Move a verified file to its place, replacing what was there; after return it survives a power cut.

    ``name`` is what errors call it. Raises DiskFull, PublishFailed.
    """
    try:
        _sync(made)
        made.replace(place)
        _sync(place.parent)
    except FileNotFoundError as error:
        reason = "its private folder is gone; a newer attempt at the task has taken over"
        raise PublishFailed(output=name, reason=reason) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(directory=place.parent) from error
        raise PublishFailed(output=name, reason=str(error)) from error


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
