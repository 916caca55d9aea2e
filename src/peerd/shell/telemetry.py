"""What a process measures: its metrics and its spans, and how they leave it."""

from __future__ import annotations

from peerd.config.settings import TelemetrySettings
from peerd.doorbell.notifier import Notifier
from peerd.runtime.metrics.node_metrics import MetricsReporter
from peerd.runtime.metrics.registry import (
    AttemptStatistics,
    MetricsEventListener,
    MetricsRegistry,
    Sample,
    attempt_samples,
)
from peerd.runtime.observability.events import EventBus
from peerd.runtime.process.process_context import ProcessContext
from peerd.store.connection.database import Database
from peerd.store.connection.outages import DatabaseMetrics


class ProcessTelemetry:
    """Measures a process, as far as [telemetry] says so.

    Args:
        settings: [telemetry].
        events: of the process, which are counted.
        database: whose operations are measured.
        notifier: whose rings are counted.
        statistics: of the attempts that end in the process; it listens to their events.
    """

    def __init__(
        self,
        settings: TelemetrySettings,
        events: EventBus,
        database: Database,
        notifier: Notifier | None = None,
        statistics: AttemptStatistics | None = None,
    ) -> None:
        self._settings = settings
        self._metrics = metrics = MetricsRegistry()
        if not settings.metrics:
            return
        events.listen(MetricsEventListener(metrics))
        DatabaseMetrics(database, metrics)
        if notifier is not None:
            metrics.add_source(lambda: [Sample("peerd_rings_sent_total", (), notifier.rings_sent)])
        if statistics is not None:
            metrics.add_source(lambda: attempt_samples(statistics))

    def attach(self, process: ProcessContext) -> None:
        """Measure a process, report its metrics to the agent, unless it is the agent, and export its spans."""
        if self._settings.opentelemetry:
            _trace(process)
        process.metrics = self._metrics
        if self._settings.metrics:
            self._metrics.add_source(
                lambda: [Sample("peerd_loop_lag_seconds", (process.kind,), process.take_largest_lag())]
            )
            if process.kind != "agent":
                MetricsReporter(process)


def _trace(process: ProcessContext) -> None:
    from peerd.runtime.span_export import set_up_tracing  # noqa: PLC0415 - of an extra, and slow to load
    from peerd.runtime.spans import AttemptTracer  # noqa: PLC0415

    process.on_finish(set_up_tracing(process.node, process.slot))
    process.tracer = AttemptTracer(process.node, process.slot)
