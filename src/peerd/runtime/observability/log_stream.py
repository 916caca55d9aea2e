"""Standard output and standard error of a process of a node: a log that takes nothing harms nobody who writes to it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from io import TextIOWrapper
from threading import Thread
from typing import Final

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
