"""The thread of a process that writes the lines of its attempts, with a connection of its own, and their copies.

It waits for nothing but lines: a process whose handlers log nothing runs no statement. The first line after a pause is
written within `WRITE_EVERY`, and at once when its attempt ends; after that there is at most one round of writes in
that time. No outcome waits for it. While the database is away, lines wait, and beyond a limit the oldest are dropped.
First it writes what processes of the node that were killed have left in the run directory.

Lines that are not in the table yet are also in a file in the run directory: a process that is killed or aborts writes
nothing more, and its last lines say most about its end. What it has put into the file stays; the next worker process
that starts on the node writes it into the table. A line is put there by the thread that logs it, so none is late. An
error of the disk costs these copies alone: the lines are written as before.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

import msgspec
import psutil

from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.pacing import Backoff
from peerd.runtime.observability.events import EventBus, TaskLinesDropped
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.store.connection.database import Database
from peerd.store.tasks.log_lines import LoggedLine, write_lines
from peerd.work.attempt_log import LineBatch, LineCollector

PREFIX: Final = "lines-"
"""How the names of the files begin; the number of the process follows."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a file: what a process logs beyond them in a long outage has no copy."""
LINES_OF_A_PART: Final = 1000


class LineJournal:
    """The file of this process. Raises `OSError` where none can be made.

    Args:
        directory: the run directory.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / f"{PREFIX}{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._descriptor).st_size  # an earlier process had the same number

    def append(self, line: LoggedLine) -> None:
        """Put a line into it, if there is room."""
        if self._size < MOST_BYTES:
            with suppress(OSError):
                self._size += os.write(self._descriptor, msgspec.json.encode(line) + b"\n")

    def clear(self) -> None:
        """All its lines are in the table."""
        if self._size:
            os.ftruncate(self._descriptor, 0)
            self._size = 0

    def close(self) -> None:
        """All its lines are in the table, and there will be no further ones."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def left_lines(self) -> Iterator[list[LoggedLine]]:
        """The lines in the files of processes that have ended, in parts; each is written before the next is asked for.

        Two processes may read the same file: a line is written once, whoever writes it.
        """
        for path in sorted(self._path.parent.glob(f"{PREFIX}*")):
            number = path.name.removeprefix(PREFIX)
            is_own = path == self._path
            if number.isdecimal() and (is_own or not psutil.pid_exists(int(number))):
                with suppress(OSError):
                    lines = list(_decoded(path.read_bytes()))
                    for start in range(0, len(lines), LINES_OF_A_PART):
                        yield lines[start : start + LINES_OF_A_PART]
                    if not is_own:
                        path.unlink()


def _decoded(content: bytes) -> Iterator[LoggedLine]:
    for line in content.splitlines():
        with suppress(msgspec.MsgspecError):  # a full disk has cut it
            yield msgspec.json.decode(line, type=LoggedLine)


# ---------------------------------------------------------------- the writer


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
        self.lines = LineCollector(least_level, self._wake, None if self._journal is None else self._journal.append)
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
        self._clear_journal()
        self._last_round = self._clock()
        self._pauses.reset()
        if self.lines.dropped > self._reported:
            count, self._reported = self.lines.dropped - self._reported, self.lines.dropped
            self._events.emit(TaskLinesDropped(count=count, reason="too many lines waited to be written"))
        return True

    def _clear_journal(self) -> None:
        """Clear the copies, unless lines have come meanwhile, which wait for the next time."""
        with self.lines.lock:
            if self._journal is not None and not len(self.lines):
                self._journal.clear()

    def _has_batch(self) -> bool:
        """Whether there are lines to write: those of the last try, of ended processes, or those that wait."""
        while not any(self._batch):
            left = next(self._left, None)
            self._batch = self.lines.take() if left is None else LineBatch(left, [])
            if left is None:
                break
        return any(self._batch)
