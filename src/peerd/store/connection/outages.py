"""Outages of the database, reported once at the begin and once at the end, and measures of its operations."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.pacing import Backoff
from peerd.runtime.metrics.registry import MetricsRegistry, Sample
from peerd.runtime.observability.events import DatabaseOutageEnded, DatabaseOutageStarted, EventBus
from peerd.store.connection.database import Database

T = TypeVar("T")


STEADY_AFTER: Final = 5.0
"""Seconds without a failure after which the database counts as back, where it has come and gone again and again."""
MOST_RELAPSES: Final = 3


class OutageTracker:
    """Whether this process can reach the database; emits an event at each change. Thread-safe.

    A server that answers reads and refuses writes would be lost and found each second: after some relapses it counts as
    lost until nothing has failed for `STEADY_AFTER`.
    """

    def __init__(self, events: EventBus, clock: Callable[[], float]) -> None:
        self._events = events
        self._clock = clock
        self._lock = threading.Lock()
        self._since: float | None = None
        self._lost_at = self._found_at = -math.inf
        self._relapses = 0

    def lost(self, error: DatabaseUnavailable) -> None:
        """Record an attempt that failed."""
        with self._lock:
            now = self._lost_at = self._clock()
            known, self._since = self._since, self._since or now
            if known is None:
                self._relapses = self._relapses + 1 if now - self._found_at < STEADY_AFTER else 0
        if known is None:
            self._events.emit(DatabaseOutageStarted(reason=error.reason))

    def found(self) -> None:
        """Record an attempt that succeeded."""
        if self._since is None:
            return
        with self._lock:
            now = self._clock()
            if self._relapses >= MOST_RELAPSES and now - self._lost_at < STEADY_AFTER:
                return
            since, self._since, self._found_at = self._since, None, now
        if since is not None:
            self._events.emit(DatabaseOutageEnded(seconds=now - since))

    async def retry_while_down(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat an attempt until the database answers."""
        pauses = Backoff()
        while True:
            try:
                result = await attempt()
            except DatabaseUnavailable as error:
                self.lost(error)
                await asyncio.sleep(pauses.next())
            else:
                self.found()
                return result


# ---------------------------------------------------------------- database metrics


class DatabaseMetrics:
    """Counts in a registry what a database does."""

    def __init__(self, database: Database, metrics: MetricsRegistry) -> None:
        self._database = database
        self._metrics = metrics
        metrics.add_source(self._connections)
        database.observer = self

    def ended(self, outcome: str, seconds: float) -> None:
        """Count an operation."""
        self._metrics.observe("peerd_database_operation_seconds", seconds, outcome)

    def repeated(self) -> None:
        """Count a repetition."""
        self._metrics.count("peerd_database_retries_total")

    def _connections(self) -> Iterable[Sample]:
        pools: list[Any] = [engine.pool for engine in self._database.engines.distinct()]
        counted = [pool for pool in pools if hasattr(pool, "checkedout") and hasattr(pool, "checkedin")]
        for state, count in (
            ("in_use", sum(pool.checkedout() for pool in counted)),
            ("idle", sum(pool.checkedin() for pool in counted)),
        ):
            yield Sample("peerd_database_connections", (state,), count)
