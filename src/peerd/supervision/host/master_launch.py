"""Starts a master, a fresh interpreter that reads its plan from a descriptor; its terminal and descriptor limit."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator, Mapping
from typing import Final, NoReturn

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
"""Signals that stop a node; a second one stops it without grace."""

TARGET_SOFT_LIMIT: Final = 65_536
"""Descriptors: enough for tens of thousands of connections per web process. Hard limits of containers can be a billion,
and some programs iterate over all numbers up to their limit when they start."""


@contextlib.contextmanager
def master_command_line(plan: Mapping[str, object]) -> Iterator[tuple[list[str], int]]:
    """Yield the command line of a plan's master, and the descriptor that it must inherit."""
    fd = os.memfd_create("peerd-plan", 0)
    try:
        with os.fdopen(os.dup(fd), "wb") as file:
            file.write(json.dumps(plan).encode())
        os.lseek(fd, 0, os.SEEK_SET)
        # -P keeps the current folder off the module path: a project's queue.py must not replace the library's.
        yield [sys.executable, "-P", "-m", "peerd.supervision.master", str(fd)], fd
    finally:
        os.close(fd)


def exec_master(plan: Mapping[str, object]) -> NoReturn:
    """Replace this process by the master of a plan (see `peerd.supervision.plan`), in a fresh interpreter."""
    with master_command_line(plan) as (command, _):
        sys.stdout.flush()
        sys.stderr.flush()
        # The master unblocks the signals when it can handle them; the first process of a container would lose them.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted


def has_controlling_tty() -> bool:
    """Whether this process was started at a terminal that still exists."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def raise_descriptor_limit() -> None:
    """Raise the soft limit of this process and its children to the hard one, at most to `TARGET_SOFT_LIMIT`.

    The soft limit is 1024 on most systems for the sake of programs that use select(2)
    (https://0pointer.net/blog/file-descriptor-limits.html); a web process would refuse its 1000th connection.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = TARGET_SOFT_LIMIT if hard == resource.RLIM_INFINITY else min(hard, TARGET_SOFT_LIMIT)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # it keeps the limit that it has
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
