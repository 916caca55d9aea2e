"""The log file of a node: all of its processes append to it, and each can go over to a new one without losing a line.

Every process has the file as its stdout and stderr, inherited from the master. A line is one write to a descriptor in
append mode, which the kernel never mixes with another. To rotate, somebody renames the file; whoever has it open goes
on writing to it, under its new name, until it is told to open the path anew. The new file takes the place of the old
one under the same descriptor numbers in one step (dup2), so there is no moment without a log.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

LOG_DESCRIPTORS: Final = (1, 2)
"""The descriptors that are the log: stdout and stderr."""


def open_log(path: str | Path) -> int:
    """Open a log file for appending, making it and its folder if need be; readable for its owner and group.

    Raises:
        OSError: it cannot be written, or is a symbolic link: one that another user has laid would lead the log, and
            what users can have written into it, to a file of that user's choice.
    """
    Path(path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    return open_no_link(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)


def open_no_link(path: str | Path, flags: int, mode: int) -> int:
    """Open a file as `os.open` does, unless its last name is a symbolic link; programs do not inherit it.

    Raises:
        OSError: it cannot be opened, or is such a link.
    """
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(f"{path} is a symbolic link; remove it, or name the file that it leads to") from error
        raise


def redirect_output(path: str | Path, descriptors: Sequence[int] = LOG_DESCRIPTORS) -> None:
    """Let this process write to the file that the path names now.

    Args:
        path: of the log.
        descriptors: which of the process's; they are inherited by what it starts.

    Raises:
        OSError: it cannot be written; the descriptors are as they were.
    """
    file = open_log(path)
    try:
        for descriptor in descriptors:
            os.dup2(file, descriptor)
    finally:
        os.close(file)


def is_regular_file(descriptor: int) -> bool:
    """Whether a descriptor is a file on a disk, rather than a terminal, a pipe or the journal's socket."""
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:  # it is closed
        return False


def is_written_by(path: str | Path, descriptor: int = LOG_DESCRIPTORS[-1]) -> bool:
    """Whether a descriptor of this process still is the file that the path names."""
    try:
        there = Path(path).stat()
    except OSError:
        return False
    return os.path.samestat(there, os.fstat(descriptor))


def rotated_path(path: Path, number: int) -> Path:
    """The name of a file that was rotated away: 1 is the latest.

    Example:
        >>> rotated_path(Path("peerd.log"), 1)
        PosixPath('peerd.log.1')
    """
    return path.with_name(f"{path.name}.{number}")


def rotate(path: Path, keep: int) -> None:
    """Rename the log to `….1`, what was `….1` to `….2`, and so on; the one beyond `keep` is dropped.

    Raises:
        OSError: a file cannot be renamed.
    """
    for number in range(keep, 1, -1):
        younger = rotated_path(path, number - 1)
        if younger.exists():
            younger.replace(rotated_path(path, number))
    path.replace(rotated_path(path, 1))
