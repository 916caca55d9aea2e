"""What binds a process to its parent on Linux; elsewhere these calls do nothing, and end of file has to do."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


def die_with_parent(number: signal.Signals, parent: int) -> bool:
    """Have the kernel send this process a signal when its parent ends, and say whether the parent was still there.

    The kernel watches the parent's **thread** that started this process, not the parent: start such processes from a
    thread that lives as long as the parent (its main thread). Call it after exec: fork and setuid programs drop it.

    Args:
        number: the signal to get.
        parent: process id of the expected parent; asking for it afterwards closes the race with its death.

    Raises:
        OSError: the kernel refused.
    """
    _prctl(_PR_SET_PDEATHSIG, number)
    return os.getppid() == parent


def become_subreaper() -> None:
    """Make this process the parent of all its descendants that lose theirs, so that none gets out of its sight.

    Raises:
        OSError: the kernel refused.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, argument: int) -> None:
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")
