"""How a process becomes a master, or starts one: a fresh interpreter that gets its plan by a descriptor."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from typing import Final, NoReturn

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
"""What asks a master to stop; a second one hurries it."""


@contextlib.contextmanager
def master_command_line(plan: Mapping[str, object]) -> Iterator[tuple[list[str], int]]:
    """Give the command line of a plan's master, and the descriptor that it must inherit.

    Args:
        plan: as JSON has it; see `peerd.supervision.plan`.
    """
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
    """Become the master of a plan: this process is replaced by a fresh interpreter that loads only the master.

    Args:
        plan: as JSON has it; see `peerd.supervision.plan`.
    """
    with master_command_line(plan) as (command, _):
        sys.stdout.flush()
        sys.stderr.flush()
        # A stop that comes before the master hears it waits; the first process of a container would never get it.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted
