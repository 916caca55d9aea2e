"""A private folder for each attempt, and publishing: the one step that makes its output visible.

Invariant: a name below the media directory either does not exist, or is a whole, verified file. The output is
written in a folder that no task may name, on the same file system, and gets its name by one hard link, which fails if
the name is taken, or by one rename, if the task may replace a file.

Everything is done by descriptors. The folder of the private folders is used only if no user but the worker's may write
in it, so the names in a private folder are trusted. Folders above it may belong to others: exchanging them changes
nothing, because the private folder and the folder of the output are held open.

A private folder is locked while its process runs; the lock ends with the process, however it ends. An unlocked folder
is therefore abandoned, and the next task on this file system removes it. The folders of earlier attempts at the same
task are removed even if locked: this attempt has the newer claim, and an older process that is resumed after a pause
must not publish. The name of each attempt is unique, so it cannot mistake our files for its own.
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
from typing import Self

from peerd.workers.video.errors import DiskFull, Misconfigured, OutputExists, PublishFailed, WorkFolderRefused
from peerd.workers.video.files.descriptors import Descriptor, FileDescriptor, FolderDescriptor, identity_of
from peerd.workers.video.files.paths import NamedEntry

_ATTEMPTS = 5
_MIN_ABANDONED_AGE = 60.0  # between mkdir and lock a new folder looks abandoned
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


class OutputFile(FileDescriptor):
    def __init__(self, fd: int, folder: FolderDescriptor, name: str) -> None:
        super().__init__(fd)
        self.folder = folder
        self.name = name


class PrivateFolder:
    """A folder below ``parent`` for the length of a ``with``. Its name cannot be guessed."""

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

    def __exit__(self, *_: object) -> None:
        with self._exit_stack:
            _remove(self._parent_folder, self.path.name)
            with contextlib.suppress(OSError):  # another task has a folder there
                os.rmdir(self._parent.name, dir_fd=self._base_folder.fd)

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[OutputFile]:
        """Make an empty file in it and hold it open. Raises DiskFull."""
        try:
            file = self._folder.create(name)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise DiskFull(directory=self._parent.parent) from error
            raise
        with OutputFile(file.fd, self._folder, name) as output_file:
            yield output_file

    def require_same_file_system(self, folder: FolderDescriptor, name: str) -> None:
        """Check that the output ``name`` can be moved there by a rename. Raises Misconfigured."""
        if self._folder.identity[0] != folder.identity[0]:
            raise Misconfigured(reason=f"scratch {self._parent} is not on the file system of {name}")

    def _make(self, held: contextlib.ExitStack) -> None:
        self._parent.parent.mkdir(parents=True, exist_ok=True)
        self._base_folder = held.enter_context(FolderDescriptor.at(self._parent.parent))
        name = f"{self._task}{secrets.token_hex(16)}"
        for _ in range(_ATTEMPTS):
            target = self._base_folder.link_target(self._parent.name)
            if target is not None:
                raise WorkFolderRefused(folder=self._parent, reason=f"it is a link to {target}")
            self._parent_folder = held.enter_context(self._base_folder.enter(self._parent.name, make=0o700))
            _require_own_folder(self._parent_folder, self._parent)
            try:
                self._folder = held.enter_context(self._parent_folder.enter(name, make=0o700))
            except FileNotFoundError:  # the last task there has just removed the parent
                continue
            self.path = self._parent / name
            _lock(held.enter_context(self._folder.readable()))
            return
        raise FileNotFoundError(errno.ENOENT, "it is removed again and again", str(self._parent))

    def _remove_abandoned(self) -> None:
        with self._parent_folder.readable() as folder:
            names = os.listdir(folder.fd)  # noqa: PTH208 - no path but a descriptor
        for name in names:
            if name == self.path.name or not name.startswith("task-"):
                continue
            if name.startswith(self._task) or _is_abandoned(self._parent_folder, name):
                _remove(self._parent_folder, name)


def _require_own_folder(folder: FolderDescriptor, path: Path) -> None:
    """Check that no other user can exchange files in it, as its owner or a writer. Raises WorkFolderRefused."""
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
    """Lock it until it is closed. Raises OSError when another process has."""
    fcntl.flock(folder.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove(parent_folder: FolderDescriptor, name: str) -> None:
    shutil.rmtree(name, ignore_errors=True, dir_fd=parent_folder.fd)


def publish(output_file: OutputFile, target: NamedEntry, *, replace: bool, earlier_sha256: str | None = None) -> None:
    """Give a verified file its name; after return it survives a power cut.

    ``replace``: a file of this name is replaced. ``earlier_sha256``: of what an earlier attempt at the task may have
    published; a file of this content stays, and counts as this one.

    Raises DiskFull, OutputExists, PublishFailed.
    """
    try:
        os.fsync(output_file.fd)
        found = output_file.folder.look_up(output_file.name)
        if found is None or identity_of(found) != output_file.identity:
            reason = "its private folder is gone; a newer attempt at the task has taken over"
            raise PublishFailed(output=target.relative, reason=reason)
        if not target.folder_is_in_place():
            raise PublishFailed(output=target.relative, reason="its folder was moved or exchanged while the task ran")
        if replace:
            _rename(output_file, target)
        elif not _publish_beside_others(output_file, target) and not _has_content(target, earlier_sha256):
            raise OutputExists(output=target.relative)
        with target.folder.readable() as folder:
            os.fsync(folder.fd)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise DiskFull(directory=target.relative) from error
        raise PublishFailed(output=target.relative, reason=str(error)) from error


def _publish_beside_others(output_file: OutputFile, target: NamedEntry) -> bool:
    """Give it its name unless a file has that; return whether it did."""
    try:
        os.link(output_file.name, target.name, src_dir_fd=output_file.folder.fd, dst_dir_fd=target.folder.fd)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        # FAT and some network file systems. A file that gets the name between these two steps is lost.
        if target.folder.look_up(target.name) is not None:
            return False
        _rename(output_file, target)
    return True


def _rename(output_file: OutputFile, target: NamedEntry) -> None:
    os.replace(output_file.name, target.name, src_dir_fd=output_file.folder.fd, dst_dir_fd=target.folder.fd)


def _has_content(target: NamedEntry, sha256: str | None) -> bool:
    if sha256 is None or not stat.S_ISREG(target.look_up().st_mode):
        return False
    with target.folder.open(target.name) as file:
        return sha256_of(file.reader()) == sha256


def sha256_of(reader: io.BufferedReader) -> str:
    """Read a file to its end, close it, and return its SHA-256 in hexadecimal."""
    with reader:
        return hashlib.file_digest(reader, "sha256").hexdigest()
