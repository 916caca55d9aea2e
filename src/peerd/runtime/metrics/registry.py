"""What one process counts, since its start. Thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from peerd.domain.histogram import Histogram
from peerd.runtime.metrics.samples import MAX_LABEL, Sample, SeriesKey, sample_of
from peerd.runtime.observability.attempt_statistics import AttemptStatistics

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
