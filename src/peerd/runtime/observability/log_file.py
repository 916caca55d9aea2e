"""The log file of a node, to which all its processes append, and their streams into it.

The file is the stdout and stderr of every process, inherited from the master. A line is one write in append mode, which
the kernel does not mix with another. A rotation renames the file; processes write to the renamed file until they reopen
the path. The new file replaces the old one under the same descriptor numbers in one step (dup2). So no line is lost,
except where the file takes nothing: a stream that writes to a full disk harms nobody who writes to it.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from pathlib import Path
from threading import Thread
from typing import Final

LOG_DESCRIPTORS: Final = (1, 2)  # stdout and stderr


def open_log(path: str | Path) -> int:
    """Open a log file for appending, readable for its owner and group; create it and its folder if necessary.

    Raises OSError also for a symbolic link, by which another user could direct the log, and text in it, to any file.
    """
    Path(path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    return open_no_link(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)


def open_no_link(path: str | Path, flags: int, mode: int) -> int:
    """Open a file, not inheritable; raises OSError also if the last part of the path is a symbolic link."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(f"{path} is a symbolic link; remove it, or name the file that it leads to") from error
        raise


def redirect_output(path: str | Path, descriptors: Sequence[int] = LOG_DESCRIPTORS) -> None:
    """Direct descriptors of this process, which its children inherit, to the file that the path names now.

    Raises OSError if the file cannot be written; the descriptors are unchanged then.
    """
    file = open_log(path)
    try:
        for descriptor in descriptors:
            os.dup2(file, descriptor)
    finally:
        os.close(file)


def is_regular_file(descriptor: int) -> bool:
    """Whether a descriptor is a regular file, rather than a terminal, a pipe or the journal's socket."""
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:  # it is closed
        return False


def is_written_by(path: str | Path, descriptor: int = LOG_DESCRIPTORS[-1]) -> bool:
    """Whether a descriptor of this process is the file that the path names now."""
    try:
        return os.path.samestat(Path(path).stat(), os.fstat(descriptor))
    except OSError:
        return False


def rotated_path(path: Path, number: int) -> Path:
    """The path of a rotated file; 1 is the latest.

    >>> rotated_path(Path("peerd.log"), 1)
    PosixPath('peerd.log.1')
    """
    return path.with_name(f"{path.name}.{number}")


def rotate(path: Path, keep: int) -> None:
    """Rename the log to `….1`, `….1` to `….2`, and so on; the file number `keep` is overwritten. Raises OSError."""
    for number in range(keep, 1, -1):
        newer = rotated_path(path, number - 1)
        if newer.exists():
            newer.replace(rotated_path(path, number))
    path.replace(rotated_path(path, 1))


# ---------------------------------------------------------------- streams


REPORT_EVERY: Final = 60.0
"""Seconds between two reports that the log takes nothing."""


class LogStream(TextIOWrapper):
    """A stream whose writes do not raise where its disk is full or its reader has gone: the text is lost, and counted.

    When it takes text again, a line in it says how much was lost. `on_lost` is called with the error, once a minute, in
    a thread of its own, because the writer holds the lock of its logger.
    """

    on_lost: Callable[[OSError], object] = staticmethod(lambda _: None)
    lost = 0
    """Writes that have failed since the last one that did not."""
    _next_report = 0.0

    def write(self, text: str) -> int:
        """Write a text, or lose it."""
        try:
            written = super().write(text)
            if self.lost and text.endswith("\n"):  # with which it was written out
                lost, self.lost = self.lost, 0
                super().write(f"peerd: the log took nothing for a while: {lost} writes are missing or late\n")
            return written
        except OSError as error:
            self._lose(error)
            return len(text)

    def flush(self) -> None:
        """Flush, as far as the log takes it."""
        try:
            super().flush()
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        self.lost += 1
        if time.monotonic() >= self._next_report:
            self._next_report = time.monotonic() + REPORT_EVERY
            Thread(target=self.on_lost, args=(error,), daemon=True).start()


def protect_output() -> None:
    """Put a `LogStream` in the place of `sys.stdout` and `sys.stderr`.

    Each line of a print is written to the log immediately and in one piece, since other processes write there too. With
    PYTHONUNBUFFERED a line and its newline would be two writes, between which another process may write.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if type(stream) is TextIOWrapper:
            encoding, errors = stream.encoding, stream.errors
            protected = LogStream(stream.detach(), encoding=encoding, errors=errors, line_buffering=True)
            setattr(sys, name, protected)
            setattr(sys, f"__{name}__", protected)


def report_lost_output(on_lost: Callable[[OSError], object]) -> None:
    """Call a function with the error, once a minute, while this process's output is lost."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, LogStream):
            stream.on_lost = on_lost
