"""What one process counts, since its start: numbers, and events by the table `COUNTED`. Thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from peerd.domain.attempt_totals import Histogram
from peerd.runtime.metrics.samples import MAX_LABEL, Sample, SeriesKey, sample_of
from peerd.runtime.observability import events
from peerd.runtime.observability.attempt_statistics import AttemptStatistics
from peerd.runtime.observability.events import Event

MOST_SERIES: Final = 1_000
"""Series of a process beside those of handlers; all further ones are counted as `(other)`."""

SampleSource = Callable[[], Iterable[Sample]]
"""Reads numbers that another object keeps."""


class MetricsRegistry:
    """The metrics of a process.

    >>> metrics = MetricsRegistry()
    >>> metrics.count("peerd_chore_rows_total", "purge done", by=3)
    >>> metrics.samples()
    [Sample(name='peerd_chore_rows_total', labels=('purge done',), value=3.0, bins=())]
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[tuple[str, tuple[str, ...]], float] = {}
        self._histograms: dict[tuple[str, tuple[str, ...]], Histogram] = {}
        self._sources: list[SampleSource] = []

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Add to a counter."""
        with self._lock:
            numbers = self._numbers
            key = (name, labels)
            if key not in numbers:
                key = self._bounded(name, labels)
            numbers[key] = numbers.get(key, 0.0) + by

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """Add a duration to a histogram."""
        with self._lock:
            histogram = self._histograms.get((name, labels))
            if histogram is None:
                key = self._bounded(name, labels)
                histogram = self._histograms.setdefault(key, Histogram())
            histogram.add(seconds)

    def add_source(self, source: SampleSource) -> None:
        """Read these, too; it is called on the event loop."""
        self._sources.append(source)

    def samples(self) -> list[Sample]:
        """All numbers as they are now."""
        with self._lock:
            found = [Sample(name, labels, value) for (name, labels), value in self._numbers.items()]
            found += [sample_of(name, labels, one) for (name, labels), one in self._histograms.items()]
        for source in self._sources:
            found += source()
        return found

    def _bounded(self, name: str, labels: tuple[str, ...]) -> SeriesKey:
        """The series of labels that are counted for the first time."""
        if len(self._numbers) + len(self._histograms) >= MOST_SERIES:
            return SeriesKey(name, labels).as_other
        return SeriesKey(name, tuple(label[:MAX_LABEL] for label in labels))


def attempt_samples(statistics: AttemptStatistics) -> Iterable[Sample]:
    """The samples of the attempts that a process has ended."""
    for (queue, name), found in statistics.snapshot().items():
        for outcome, count in found.outcomes.items():
            yield Sample("peerd_tasks_finished_total", (queue, name, outcome), count)
        yield sample_of("peerd_task_wait_seconds", (queue, name), found.wait)
        yield sample_of("peerd_task_run_seconds", (queue, name), found.run)


def _count_claim(metrics: MetricsRegistry, event: events.TasksClaimed) -> None:
    metrics.count("peerd_claimed_tasks_total", by=event.count)
    metrics.observe("peerd_claim_seconds", event.milliseconds / 1000)


def _count_lost_claim(metrics: MetricsRegistry, event: events.ClaimLost) -> None:
    if event.noticed_at == "outcome":
        metrics.count("peerd_refused_writes_total")
    else:
        metrics.count("peerd_lost_claims_total", event.noticed_at)


def _count_rescues(metrics: MetricsRegistry, event: events.TasksRescued) -> None:
    metrics.count("peerd_rescues_total", by=len(event.task_ids))
    if event.dead:
        metrics.count("peerd_rescued_dead_total", by=event.dead)


COUNTED: Final[dict[type[Event], Callable[[MetricsRegistry, Any], None]]] = {
    events.TasksClaimed: _count_claim,
    events.ClaimLost: _count_lost_claim,
    events.UnknownClaimReleased: lambda metrics, _: metrics.count("peerd_unknown_claims_released_total"),
    events.TasksRescued: _count_rescues,
    events.ReservationsReleased: lambda metrics, event: metrics.count(
        "peerd_released_reservations_total", by=len(event.task_ids)
    ),
    events.BadCopiesFound: lambda metrics, event: metrics.count(
        "peerd_storage_bad_copies_total", str(event.disk), event.found_by, by=len(event.files)
    ),
    events.ComponentFailed: lambda metrics, event: metrics.count("peerd_component_failures_total", event.component),
    events.DatabaseOutageStarted: lambda metrics, _: metrics.count("peerd_database_outages_total"),
    events.DatabaseOutageEnded: lambda metrics, event: metrics.count(
        "peerd_database_outage_seconds_total", by=event.seconds
    ),
    events.ChoreRan: lambda metrics, event: metrics.count("peerd_chore_rows_total", event.chore, by=event.count),
    events.ScheduleRunEnded: lambda metrics, event: metrics.count(
        "peerd_schedule_runs_total", event.schedule, event.status
    ),
}


class MetricsEventListener:
    """Counts events in a registry; for `EventBus.listen`.

    >>> metrics = MetricsRegistry()
    >>> MetricsEventListener(metrics)(events.ChoreRan(chore="purge done", count=3))
    >>> metrics.samples()[0].value
    3.0
    """

    def __init__(self, metrics: MetricsRegistry) -> None:
        self._metrics = metrics

    def accepts(self, kind: type[Event]) -> bool:
        """Whether events of a kind are counted."""
        return kind in COUNTED

    def __call__(self, event: Event) -> None:
        """Count an event."""
        COUNTED[type(event)](self._metrics, event)
