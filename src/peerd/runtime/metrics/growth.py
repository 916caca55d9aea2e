"""What has changed in the metrics of a process since its last report."""

from __future__ import annotations

from collections.abc import Iterable

from peerd.domain.histogram import Histogram
from peerd.runtime.metrics.families import MetricKind
from peerd.runtime.metrics.samples import Sample, SeriesKey, sample_of

GAUGES = (MetricKind.GAUGE, MetricKind.LARGEST)


class ReportedGrowth:
    """Remembers what was reported, and takes the rest: the growth of counters and histograms, and changed gauges.

    Growth, and not totals, is reported: the agent adds it, so a process that ends takes nothing away, and an agent
    that is replaced begins at 0, as Prometheus expects of a counter that is set back.

    >>> growth = ReportedGrowth()
    >>> [sample.value for sample in growth.take([Sample("peerd_rescues_total", value=5.0)])]
    [5.0]
    >>> [sample.value for sample in growth.take([Sample("peerd_rescues_total", value=7.0)])]
    [2.0]
    >>> growth.take([Sample("peerd_rescues_total", value=7)])
    []
    """

    def __init__(self) -> None:
        self._numbers: dict[SeriesKey, float] = {}
        self._histograms: dict[SeriesKey, Histogram] = {}
        self._gauges: dict[SeriesKey, float] = {}

    def take(self, samples: Iterable[Sample]) -> list[Sample]:
        """What has changed, which counts as reported from now on."""
        return [growth for sample in samples if (growth := self._growth_of(sample)) is not None]

    def undo(self, growth: Iterable[Sample]) -> None:
        """These were not delivered: they are part of the next growth."""
        for sample in growth:
            key = sample.key
            if sample.kind is MetricKind.COUNTER:
                self._numbers[key] -= sample.value
            elif sample.kind is MetricKind.HISTOGRAM:
                self._histograms[key] = self._histograms[key].since(sample.histogram)
            else:
                self._gauges.pop(key, None)

    def forget_gauges(self) -> None:
        """Report all gauges again: a new agent knows none."""
        self._gauges.clear()

    def _growth_of(self, sample: Sample) -> Sample | None:
        key = sample.key
        if sample.kind in GAUGES:
            if self._gauges.get(key) == sample.value:
                return None
            self._gauges[key] = sample.value
            return sample
        if sample.kind is MetricKind.COUNTER:
            grown = sample.value - self._numbers.get(key, 0.0)
            self._numbers[key] = sample.value
            return Sample(sample.name, sample.labels, grown) if grown > 0 else None
        now = sample.histogram
        before = self._histograms.get(key, Histogram())
        if now.counts == before.counts:
            return None
        self._histograms[key] = now
        return sample_of(sample.name, sample.labels, now.since(before))
