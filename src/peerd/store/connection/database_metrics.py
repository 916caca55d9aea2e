"""Measures the operations and the connections of a database, for the metrics of its process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from peerd.runtime.metrics.registry import MetricsRegistry
from peerd.runtime.metrics.samples import Sample
from peerd.store.connection.database import Database


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
