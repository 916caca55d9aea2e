"""The thread of a process that writes the lines of its attempts, with a connection of its own.

It waits for nothing but lines: a process whose handlers log nothing runs no statement. The first line after a pause is
written within `WRITE_EVERY`, and at once when its attempt ends; after that there is at most one round of writes in
that time. No outcome waits for it. While the database is away, lines wait, and beyond a limit the oldest are dropped.
First it writes what processes of the node that were killed have left in the run directory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.pacing import Backoff
from peerd.runtime.observability.events import EventBus, TaskLinesDropped
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.store.connection.database import Database
from peerd.store.tasks.log_lines import write_lines
from peerd.work.logs.attempt_log import LineBatch, LineCollector
from peerd.work.logs.line_journal import LineJournal

WRITE_EVERY: Final = 1.0
"""Seconds between two rounds of writes, at least."""
GATHER: Final = 0.05
"""Seconds that the lines of an ended attempt wait for those of others."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 10.0
"""Seconds between two tries while the database is away."""


class LineWriter:
    """Writes what a `LineCollector` has; made with it, in any thread."""

    def __init__(
        self,
        database: Database,
        events: EventBus,
        least_level: str = "info",
        run_directory: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._journal: LineJournal | None = None
        with suppress(OSError):  # the disk is full, say: lines are written all the same
            self._journal = None if run_directory is None else LineJournal(run_directory)
        self._left = iter(()) if self._journal is None else self._journal.left_lines()
        self.lines = LineCollector(least_level, self._wake, self._journal)
        self._database = database
        self._events = events
        self._clock = clock
        # Reentrant, which a Condition is not: a signal handler may print while it is notified.
        self._signals: SimpleQueue[bool | None] = SimpleQueue()
        self._is_end_announced = False
        self._stopping = False
        self._batch = LineBatch([], [])
        self._reported = 0
        self._pauses = Backoff(FIRST_PAUSE, LONGEST_PAUSE, jitter=0.0)
        self._last_round = -WRITE_EVERY
        self._thread = threading.Thread(target=self._run, name="peerd-log-lines", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._signals.put(True)
        self._thread.start()

    def stop(self, within: float) -> None:
        """Write what waits, and end; wait at most so many seconds for it."""
        self._signals.put(None)
        if self._thread.is_alive():
            self._thread.join(within)

    def _wake(self, is_end: bool) -> None:  # noqa: FBT001 - what `LineCollector.wake` is called with
        if not is_end:
            self._signals.put(False)
        elif not self._is_end_announced:
            self._is_end_announced = True
            self._signals.put(True)

    def _run(self) -> None:
        while not self._stopping:
            self._wait_until_due()
            while not self._write_all() and not self._stopping:
                self._wait_for_stop(self._pauses.next())
        lost = len(self._batch.lines) + len(self.lines)
        if self._journal is not None:
            if not lost:  # else the next process writes them
                self._journal.close()
        elif lost:
            self._events.emit(TaskLinesDropped(count=lost, reason="the database is away, and the process ends"))

    def _wait_until_due(self) -> None:
        """Wait for lines, and then until a round may begin."""
        due: float | None = None
        while due is None or self._clock() < due:
            try:
                signal = self._signals.get(timeout=None if due is None else max(due - self._clock(), 0.0))
            except Empty:
                return
            if signal is None:
                self._stopping = True
                return
            earliest = max(self._last_round + WRITE_EVERY, self._clock() + (GATHER if signal else WRITE_EVERY))
            due = earliest if due is None else min(due, earliest)

    def _wait_for_stop(self, seconds: float) -> None:
        until = self._clock() + seconds
        while not self._stopping and (left := until - self._clock()) > 0:
            try:
                self._stopping = self._signals.get(timeout=left) is None
            except Empty:
                return

    def _write_all(self) -> bool:
        """Write all lines; False: the database is away."""
        self._is_end_announced = False
        while self._has_batch():
            try:
                self._database.run(write_lines, self._batch.lines, self._batch.superseded)
            except DatabaseUnavailable:
                return False
            except Exception as error:  # noqa: BLE001 - lines must not end the thread, nor be tried for ever
                reason = describe_exception(error)
                self._events.emit(TaskLinesDropped(count=len(self._batch.lines), reason=reason))
            self._batch = LineBatch([], [])
        self.lines.written()
        self._last_round = self._clock()
        self._pauses.reset()
        if self.lines.dropped > self._reported:
            count, self._reported = self.lines.dropped - self._reported, self.lines.dropped
            self._events.emit(TaskLinesDropped(count=count, reason="too many lines waited to be written"))
        return True

    def _has_batch(self) -> bool:
        """Whether there are lines to write: those of the last try, of ended processes, or those that wait."""
        while not any(self._batch):
            left = next(self._left, None)
            self._batch = self.lines.take() if left is None else LineBatch(left, [])
            if left is None:
                break
        return any(self._batch)
