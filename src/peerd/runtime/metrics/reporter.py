"""Sends the growth of a process's metrics to the agent of its node, every few seconds and at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Final

from peerd.domain.attempt_totals import Histogram
from peerd.domain.errors import MessengerFull
from peerd.runtime.metrics.families import MetricKind
from peerd.runtime.metrics.registry import MetricsRegistry, Sample, SeriesKey, in_chunks, parse_samples, sample_of
from peerd.runtime.process.process_context import METRICS_REPORT_ACTION, ProcessContext

GAUGES = (MetricKind.GAUGE, MetricKind.LARGEST)

REPORT_EVERY: Final = 5.0
"""Seconds; a process that is killed loses what it has counted since its last report."""


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


class MetricsReporter:
    """Reports the metrics of a process. Made on its event loop; the process stops it.

    An idle process sends a message of a few hundred bytes; what is not delivered is sent with the next report.
    """

    def __init__(self, process: ProcessContext, every: float = REPORT_EVERY) -> None:
        self._process = process
        self._metrics: MetricsRegistry = process.metrics
        self._every = every
        self._growth = ReportedGrowth()
        self._agent: int | None = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(every, self._report_periodically)
        process.messenger.on_change(self._on_processes)
        process.on_finish(self._finish)

    def _report_periodically(self) -> None:
        self._timer = self._loop.call_later(self._every, self._report_periodically)
        self._report(self._metrics.samples())

    def _report(self, samples: list[Sample]) -> None:
        for chunk in in_chunks(self._growth.take(samples)):
            growth = parse_samples(chunk)
            try:
                delivery = self._process.messenger.send_to_agent(METRICS_REPORT_ACTION, chunk)
            except MessengerFull:
                self._growth.undo(growth)
                continue
            delivery.is_awaited = True
            delivery.future.add_done_callback(partial(self._on_delivered, growth))

    def _on_delivered(self, growth: list[Sample], delivered: Future[int]) -> None:
        if delivered.exception() is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._growth.undo, growth)

    def _on_processes(self) -> None:
        agent = self._process.messenger.agent
        if agent is not None and agent.pid != self._agent:
            self._agent = agent.pid
            self._growth.forget_gauges()

    def _finish(self) -> None:
        """Report what has grown since; gauges end with the process."""
        self._timer.cancel()
        self._report([sample for sample in self._metrics.samples() if sample.kind not in GAUGES])
