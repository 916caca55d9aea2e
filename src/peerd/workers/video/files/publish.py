"""A private folder per attempt, and the one moment in which its output becomes visible.

Invariant: a name below the media directory either does not exist, or is a whole, verified file. The output is
written in a folder that no task may name, on the same file system, and moved by one rename.

All of it goes by descriptors. Nobody but the worker's user may write in the folder of the private folders, or it is
not used; so a name in a private folder is ours. Folders above it may belong to others: exchanging them changes nothing,
for the folder that was made is the one that is held, and so is the folder that the output goes to.

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
import io
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from peerd.workers.video.errors import DiskFull, Misconfigured, PublishFailed, WorkFolderRefused
from peerd.workers.video.files.descriptors import Descriptor, FileDescriptor, FolderDescriptor, identity_of
from peerd.workers.video.files.paths import NamedEntry

_ATTEMPTS = 5
_MIN_ABANDONED_AGE = 60.0  # between mkdir and lock a new folder looks abandoned
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class OutputFile(FileDescriptor):
    """A file in a private folder."""

    def __init__(self, fd: int, folder: FolderDescriptor, name: str) -> None:
        super().__init__(fd)
        self.folder = folder
        self.name = name


class PrivateFolder:
    """Use it with ``with``; it is gone at the end, whatever the end. Its name below ``parent`` cannot be guessed."""

    def __init__(self, parent: Path, task: object) -> None:
        self._parent = parent
        self._task = f"task-{task}."
        self._exit_stack = contextlib.ExitStack()
        self._base_folder: FolderDescriptor
        self._parent_folder: FolderDescriptor
        self._folder: FolderDescriptor
        self.path = parent

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as held:
            try:
                self._make(held)
            except OSError as error:
                if error.errno in _NO_ROOM:
                    raise DiskFull(directory=self._parent.parent) from error
                raise Misconfigured(reason=f"no folder can be made in {self._parent} ({error})") from error
            self._remove_abandoned()
            self._exit_stack = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._exit_stack:
            _remove(self._parent_folder, self.path.name)
            with contextlib.suppress(OSError):  # another task is at work there
                os.rmdir(self._parent.name, dir_fd=self._base_folder.fd)

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[OutputFile]:
        """Make an empty file in it, and hold it. Raises DiskFull."""
        try:
            file = self._folder.create(name)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise DiskFull(directory=self._parent.parent) from error
            raise
        with OutputFile(file.fd, self._folder, name) as output_file:
            yield output_file

    def require_same_file_system(self, folder: FolderDescriptor, name: str) -> None:
        """An output, called ``name``, can only be moved atomically within a file system. Raises Misconfigured."""
        if self._folder.identity[0] != folder.identity[0]:
            raise Misconfigured(reason=f"scratch {self._parent} is not on the file system of {name}")

    def _make(self, held: contextlib.ExitStack) -> None:
        self._parent.parent.mkdir(parents=True, exist_ok=True)
        self._base_folder = held.enter_context(FolderDescriptor.at(self._parent.parent))
        name = f"{self._task}{secrets.token_hex(16)}"
        for _ in range(_ATTEMPTS):
            self._require_no_link()
            self._parent_folder = held.enter_context(self._base_folder.enter(self._parent.name, make=0o700))
            _require_own_folder(self._parent_folder, self._parent)
            try:
                self._folder = held.enter_context(self._parent_folder.enter(name, make=0o700))
            except FileNotFoundError:  # the last task there has just removed the parent
                continue
            self.path = self._parent / name
            _lock(held.enter_context(self._folder.readable()))
            return
        raise FileNotFoundError(errno.ENOENT, "it vanishes again and again", str(self._parent))

    def _require_no_link(self) -> None:
        target = self._base_folder.link_target(self._parent.name)
        if target is not None:
            raise WorkFolderRefused(folder=self._parent, reason=f"it is a link to {target}")

    def _remove_abandoned(self) -> None:
        for name in self._parent_folder.names():
            if name == self.path.name or not name.startswith("task-"):
                continue
            if name.startswith(self._task) or _is_abandoned(self._parent_folder, name):
                _remove(self._parent_folder, name)


def _require_own_folder(folder: FolderDescriptor, path: Path) -> None:
    """Whoever may write in a folder, or owns it, can exchange what lies in it. Raises WorkFolderRefused."""
    status = folder.status
    if status.st_uid != os.geteuid():
        reason = f"it belongs to user {status.st_uid}, and the worker runs as user {os.geteuid()}"
        raise WorkFolderRefused(folder=path, reason=reason)
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(status.st_mode)
        raise WorkFolderRefused(folder=path, reason=f"others may write in it (its mode is {mode:o})")


def _is_abandoned(parent_folder: FolderDescriptor, name: str) -> bool:
    try:
        with parent_folder.enter(name) as folder, folder.readable() as lock:
            if time.time() - folder.status.st_mtime < _MIN_ABANDONED_AGE:
                return False
            _lock(lock)
    except OSError:
        return False
    return True


def _lock(folder: Descriptor) -> None:
    """Lock it until it is closed. Raises OSError when somebody else has."""
    fcntl.flock(folder.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove(parent_folder: FolderDescriptor, name: str) -> None:
    shutil.rmtree(name, ignore_errors=True, dir_fd=parent_folder.fd)


def publish(output_file: OutputFile, target: NamedEntry) -> None:
    """Move a verified file to its place, replacing what was there; after return it survives a power cut.

    Raises DiskFull, PublishFailed.
    """
    try:
        os.fsync(output_file.fd)
        _require_in_place(output_file, target)
        os.replace(output_file.name, target.name, src_dir_fd=output_file.folder.fd, dst_dir_fd=target.folder.fd)
        with target.folder.readable() as folder:
            os.fsync(folder.fd)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise DiskFull(directory=target.relative) from error
        raise PublishFailed(output=target.relative, reason=str(error)) from error


def _require_in_place(output_file: OutputFile, target: NamedEntry) -> None:
    found = output_file.folder.look_up(output_file.name)
    if found is None or identity_of(found) != output_file.identity:
        reason = "its private folder is gone; a newer attempt at the task has taken over"
        raise PublishFailed(output=target.relative, reason=reason)
    if not target.folder_is_in_place():
        raise PublishFailed(output=target.relative, reason="its folder was moved or exchanged while the task ran")


def sha256_of(reader: io.BufferedReader) -> str:
    """Read a file to its end, close it, and return its SHA-256 in hexadecimal."""
    with reader:
        return hashlib.file_digest(reader, "sha256").hexdigest()
