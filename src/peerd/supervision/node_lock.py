"""Allows one master per run directory, by a lock that the kernel releases when the master ends.

Other users must not be able to write to the run directory: they could place a symbolic link there through which the
master overwrites a file, or a control socket of their own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from peerd.runtime.observability.log_file import open_no_link
from peerd.supervision.control.control_client import LOCK_FILE, PID_FILE


class AlreadyRunning(Exception):
    """Another master runs in the run directory."""

    def __init__(self, run_directory: Path, pid: str) -> None:
        super().__init__(
            f"already running as process {pid or '?'} in {run_directory}: stop it first (peerd stop), "
            "or give this node another name or run directory"
        )


class UnsafeRunDirectory(Exception):
    """Other users can write to the run directory."""


@contextlib.contextmanager
def node_lock(run_directory: Path) -> Iterator[None]:
    """Hold the lock of a run directory, which is created if necessary, and write the master's pid file.

    Raises:
        AlreadyRunning: another master holds it.
        UnsafeRunDirectory: the folder belongs to another user, or others may write to it.
        OSError: the folder cannot be used.
    """
    run_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_private_directory(run_directory)
    pid_file = run_directory / PID_FILE
    with os.fdopen(open_no_link(run_directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            with contextlib.suppress(OSError):
                raise AlreadyRunning(run_directory, pid_file.read_text().strip()) from error
            raise AlreadyRunning(run_directory, "") from error
        with os.fdopen(open_no_link(pid_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), "w") as file:
            file.write(f"{os.getpid()}\n")
        try:
            yield
        finally:
            pid_file.unlink(missing_ok=True)


def _require_private_directory(run_directory: Path) -> None:
    found = run_directory.stat()
    if found.st_uid != os.geteuid():
        raise UnsafeRunDirectory(
            f"the run directory {run_directory} belongs to user {found.st_uid}, and this node runs as user "
            f"{os.geteuid()}: start it as that user, or give it another [node] run_directory"
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UnsafeRunDirectory(
            f"others may write to the run directory {run_directory} (mode {mode:04o}): forbid it "
            f"(chmod go-w {run_directory}), or give the node another [node] run_directory"
        )
