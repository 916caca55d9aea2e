"""Writes the counts of this process's attempts into the time series of the database, a statement every few seconds.

The counts since the process's start (`AttemptStatistics`) are read every `FLUSH_EVERY` seconds, and at the end of each
minute. What was added since the last reading belongs to the minute that is ending or runs. The totals of a minute are
written as they are, not what was added to them, so that a write that is repeated changes nothing.

It runs in a thread of its own, and no outcome waits for it. While the database is away, minutes wait in memory, up to
`MOST_WAITING` rows; beyond them the counts are not read, and belong to the minute in which the database is back.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final

from peerd.domain.attempt_totals import AttemptTotals
from peerd.domain.errors import DatabaseUnavailable, RowLocked
from peerd.doorbell.datagram import ClusterClock
from peerd.runtime.metrics.registry import AttemptStatistics, HandlerKey, HandlerStatistics
from peerd.runtime.observability.events import ComponentFailed, EventBus
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.store.attempt_series import BucketRow, write_buckets
from peerd.store.connection.database import Database
from peerd.store.connection.outages import OutageTracker
from peerd.store.outcomes import database_now
from peerd.store.time_series import MINUTE

FLUSH_EVERY: Final = 10.0
"""Seconds; a process that dies without a stop loses the counts of so many."""
CLOCK_EVERY: Final = 600.0
"""Seconds after which the database is asked for its time again."""
LATE: Final = 1.0
"""Seconds by which a reading at the end of a minute may be late."""
MOST_WAITING: Final = 2_000
"""Rows that wait to be written."""

Running = Callable[[], Iterable[tuple[str, str, float]]]
"""Queue, name and start of the attempts that run, by `time.monotonic`."""


class StatisticsWriter:
    """The writer of one process; a periodic thread calls `round`, and the end of the process `flush`.

    Args:
        database: of the process.
        statistics: what it counts.
        node_id: of its node.
        process_id: of its row in `processes`.
        running: the attempts that run.
        slots: how many may run at once.
        outages: of the process.
        events: for failures.
    """

    def __init__(
        self,
        database: Database,
        statistics: AttemptStatistics,
        node_id: int,
        process_id: int,
        *,
        running: Running,
        slots: int,
        outages: OutageTracker,
        events: EventBus,
    ) -> None:
        self._database = database
        self._statistics = statistics
        self._node_id = node_id
        self._process_id = process_id
        self._running = running
        self._slots = slots
        self._outages = outages
        self._events = events
        self._clock = ClusterClock()
        self._clock_read_at = 0.0
        self._lock = threading.Lock()
        self._read: dict[HandlerKey, HandlerStatistics] = {}
        self._read_at: float | None = None
        self._elapsed: dict[HandlerKey, float] = {}
        """Seconds for which those have run that ran at the last reading."""
        self._minutes: dict[int, dict[HandlerKey, AttemptTotals]] = {}
        """By the UNIX time of their beginning; the last one, and those that are not written yet."""
        self._latest = 0
        self._changed: set[tuple[int, HandlerKey]] = set()
        self._next_flush: float | None = None

    def round(self, now: float) -> float:
        """Read the counts, and write them if it is time to. Returns the seconds until the next round."""
        with self._lock:
            if self._next_flush is None:  # so that the processes of a cluster do not write together
                self._next_flush = now + random.uniform(0.0, FLUSH_EVERY)
            is_time = now >= self._next_flush
            self._read_and_write(now, write=is_time)
            if is_time:
                self._next_flush = now + FLUSH_EVERY
            until_minute = MINUTE - self._clock() % MINUTE
            return max(0.05, min(self._next_flush - now, until_minute))

    def flush(self) -> None:
        """Write what has been counted so far, at the end of the process."""
        with self._lock:
            self._read_and_write(time.monotonic(), write=True)

    def _read_and_write(self, now: float, *, write: bool) -> None:
        try:
            self._read_counts(now)
            if write and self._changed:
                self._write()
                self._outages.found()
        except DatabaseUnavailable as error:
            self._outages.lost(error)
        except RowLocked:
            pass  # the next write has it
        except Exception as error:  # noqa: BLE001 - what was counted is kept, and written with the next
            event = ComponentFailed(component="statistics", error=describe_exception(error), again_in=FLUSH_EVERY)
            self._events.emit(event)

    # ---------------------------------------------------------------- reading

    def _read_counts(self, now: float) -> None:
        """Add what has ended since the last reading to the minute that is ending, or that runs."""
        if len(self._changed) > MOST_WAITING:
            return
        counts = self._statistics.snapshot()
        if not self._clock.is_known and (counts or any(self._running())):
            self._read_clock()
        added = {key: found.since(self._read.get(key)) for key, found in counts.items()}
        self._read = counts
        self._add_busy_seconds(added, now)
        self._latest = minute = max(self._latest, int((self._clock() - LATE) // MINUTE) * MINUTE)
        for key, totals in added.items():
            if totals.attempts or totals.busy > 0.0:
                self._minutes.setdefault(minute, {}).setdefault(key, AttemptTotals()).merge(totals)
                self._changed.add((minute, key))

    def _add_busy_seconds(self, added: dict[HandlerKey, AttemptTotals], now: float) -> None:
        """The time for which slots were occupied: of what has ended and of what runs, less what was counted before."""
        elapsed: dict[HandlerKey, float] = defaultdict(float)
        for queue, name, since in self._running():
            elapsed[self._statistics.key_of(queue, name)] += max(0.0, now - since)
        most = self._slots * (0.0 if self._read_at is None else now - self._read_at)
        for key in elapsed.keys() | self._elapsed.keys() | added.keys():
            ended = added[key].run.sum if key in added else 0.0
            busy = ended + elapsed.get(key, 0.0) - self._elapsed.get(key, 0.0)
            if busy > 0.0:
                added.setdefault(key, AttemptTotals()).busy = min(busy, most)
        self._elapsed, self._read_at = dict(elapsed), now

    # ---------------------------------------------------------------- writing

    def _write(self) -> None:
        if self._clock.steady() >= self._clock_read_at + CLOCK_EVERY:
            self._read_clock()
        changed = sorted(self._changed)
        rows = [self._row(minute, key) for minute, key in changed]
        self._database.run_short(write_buckets, rows)
        self._changed.clear()
        for minute in sorted(self._minutes)[:-1]:
            del self._minutes[minute]

    def _row(self, minute: int, key: HandlerKey) -> BucketRow:
        at = datetime.fromtimestamp(minute, UTC)
        return BucketRow(MINUTE, at, key.queue, key.name, self._node_id, self._process_id, self._minutes[minute][key])

    def _read_clock(self) -> None:
        """Ask the database for its time."""
        asked_at = self._clock.steady()
        self._clock.synchronize(self._database.read(database_now), asked_at)
        self._clock_read_at = asked_at
