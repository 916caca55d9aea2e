"""In the process of a handler: sends the lines of the handler to its worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final

from peerd.domain.task import Task
from peerd.work.logs.attempt_log import AttemptLog, LineCollector, current_attempt
from peerd.work.logs.capture import STREAM_LEVELS
from peerd.work.logs.kept_lines import KeptLine

SEND_EVERY: Final = 0.2
"""Seconds between two messages with lines; what a handler logs in this time before it is killed is lost."""
LINES_OF_A_MESSAGE: Final = 200


class LineSender:
    """Sends the lines of the handler to its worker, from a thread, at most every `SEND_EVERY`.

    A handler that logs faster than the lines can be kept is not slowed down by the pipe: what is beyond the limits of
    an attempt is dropped here. `send` gets lines, and how many were dropped before each of them.
    """

    def __init__(self, task: Task, least_level: str, send: Callable[[list[KeptLine], list[int]], None]) -> None:
        self._send = send
        self._signals: SimpleQueue[bool] = SimpleQueue()  # reentrant, as its put may be called by a signal handler
        self._collector = LineCollector(least_level, lambda _: self._signals.put(True))
        self._next = 0
        self.log = AttemptLog(self._collector, task, time.monotonic())
        current_attempt.set(self.log)
        self._thread = threading.Thread(target=self._run, name="peerd-log-lines", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send what is left, and end."""
        self.log.end(STREAM_LEVELS)
        self._signals.put(False)
        self._thread.join()

    def _run(self) -> None:
        is_running = True
        while is_running:
            is_running = self._signals.get()
            if is_running:
                with suppress(Empty):
                    is_running = self._signals.get(timeout=SEND_EVERY)
            while taken := self._collector.take_of_an_attempt(LINES_OF_A_MESSAGE):
                with suppress(BrokenPipeError):  # the worker is gone, and this process will be
                    self._send(taken.lines, [self._skipped_before(line) for line in taken.lines])

    def _skipped_before(self, line: KeptLine) -> int:
        skipped, self._next = line.sequence - self._next, line.sequence + 1
        return skipped
