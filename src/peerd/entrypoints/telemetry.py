"""What a process measures: its metrics, and the reports to the agent."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from peerd.config.settings import Settings
from peerd.doorbell.notifier import Notifier
from peerd.entrypoints.import_string import InvalidEntry
from peerd.runtime.metrics.event_counter import MetricsEventListener
from peerd.runtime.metrics.registry import MetricsRegistry, attempt_samples
from peerd.runtime.metrics.reporter import MetricsReporter
from peerd.runtime.metrics.samples import Sample
from peerd.runtime.observability.attempt_statistics import AttemptStatistics
from peerd.runtime.observability.events import EventBus
from peerd.runtime.process.process_context import ProcessContext
from peerd.store.connection.database import Database
from peerd.store.connection.database_metrics import DatabaseMetrics


class ProcessTelemetry:
    """Measures a process, if [telemetry] metrics says so.

    Args:
        settings: of the node.
        events: of the process, which are counted.
        database: whose operations are measured.
        notifier: whose rings are counted.
        statistics: of the attempts that end in the process; it listens to their events.
    """

    def __init__(
        self,
        settings: Settings,
        events: EventBus,
        database: Database,
        notifier: Notifier | None = None,
        statistics: AttemptStatistics | None = None,
    ) -> None:
        self._is_on = settings.telemetry.metrics
        self._is_traced = settings.telemetry.opentelemetry
        self.metrics = metrics = MetricsRegistry()
        """What the process counts."""
        if not self._is_on:
            return
        events.listen(MetricsEventListener(metrics))
        DatabaseMetrics(database, metrics)
        if notifier is not None:
            metrics.add_source(lambda: [Sample("peerd_rings_sent_total", (), notifier.rings_sent)])
        if statistics is not None:
            metrics.add_source(lambda: attempt_samples(statistics))

    def attach(self, process: ProcessContext) -> None:
        """Report the metrics of a process to its agent, and export its spans."""
        if self._is_traced:
            _trace(process)
        if self._is_on:
            process.metrics = self.metrics
            process.metrics.add_source(lambda: _lag(process))
            MetricsReporter(process)


def _trace(process: ProcessContext) -> None:
    from peerd.runtime.tracing.provider import set_up_tracing  # noqa: PLC0415 - of an extra, and slow to load
    from peerd.runtime.tracing.spans import AttemptTracer  # noqa: PLC0415

    process.on_finish(set_up_tracing(process.node, process.slot))
    process.tracer = AttemptTracer(process.node, process.slot)


def require_opentelemetry(settings: Settings) -> None:
    """Check that the packages of the extra `otel` are installed, where they are used.

    Raises:
        InvalidEntry: one of them is not.
    """
    if settings.telemetry.opentelemetry:
        try:
            import_module("peerd.runtime.tracing.provider")
        except ImportError as error:
            problem = f"it requires OpenTelemetry ({error}); install peerd[otel]"
            raise InvalidEntry("telemetry", "opentelemetry", problem) from error


def _lag(process: ProcessContext) -> Iterable[Sample]:
    yield Sample("peerd_loop_lag_seconds", (process.kind,), process.take_largest_lag())
