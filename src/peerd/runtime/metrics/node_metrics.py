"""The metrics of a node: processes report the growth of theirs, the agent adds it up, and others read the sum."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

import msgspec

from peerd.domain.alert import AlertKind
from peerd.domain.attempt_totals import Histogram
from peerd.domain.errors import MessengerFull, PeerdError
from peerd.runtime.concurrency import call_on_loop
from peerd.runtime.metrics.families import DEATH_CAUSES, FAMILIES, MetricKind
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
        self._reported: dict[SeriesKey, Sample] = {}

    def take(self, samples: Iterable[Sample]) -> list[Sample]:
        """What has changed, which counts as reported from now on."""
        return [growth for sample in samples if (growth := self._growth_of(sample)) is not None]

    def undo(self, growth: Iterable[Sample]) -> None:
        """Make a growth that was not delivered part of the next one."""
        for one in growth:
            reported = self._reported.pop(one.key, None)
            if reported is not None and one.kind not in GAUGES:
                self._reported[one.key] = _difference(reported, one)

    def forget_gauges(self) -> None:
        """Report all gauges again: a new agent knows none."""
        self._reported = {key: sample for key, sample in self._reported.items() if sample.kind not in GAUGES}

    def _growth_of(self, sample: Sample) -> Sample | None:
        before = self._reported.get(sample.key)
        if before == sample:
            return None
        self._reported[sample.key] = sample
        if sample.kind in GAUGES:
            return sample
        growth = sample if before is None else _difference(sample, before)
        return growth if growth.value > 0 or growth.bins else None


def _difference(now: Sample, before: Sample) -> Sample:
    if now.kind is MetricKind.HISTOGRAM:
        return sample_of(now.name, now.labels, now.histogram.since(before.histogram))
    return Sample(now.name, now.labels, now.value - before.value)


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
            call_on_loop(self._loop, self._growth.undo, growth)

    def _on_processes(self) -> None:
        agent = self._process.messenger.agent
        if agent is not None and agent.pid != self._agent:
            self._agent = agent.pid
            self._growth.forget_gauges()

    def _finish(self) -> None:
        """Report what has grown since; gauges end with the process."""
        self._timer.cancel()
        self._report([sample for sample in self._metrics.samples() if sample.kind not in GAUGES])


# ---------------------------------------------------------------- in the agent


MOST_HANDLERS_SHOWN: Final = 200
"""Handlers of a node that have series of their own. Each has up to 2 × 30 of histograms, and one for each outcome."""
MOST_SERIES_OF_METRIC: Final = 200
"""Series that a node has of any other metric."""
MAX_PAGES: Final = 200
"""More than the series of a node fill."""


class NodeMetrics:
    """Adds up what the processes of a node report. Used on the agent's event loop.

    >>> node = NodeMetrics()
    >>> for pid in (17, 18):
    ...     node.add([Sample("peerd_rescues_total", value=2), Sample("peerd_gateway_clients", ("tubes",), 3.0)], pid)
    >>> node.remove_process(17)
    >>> [(sample.name, sample.value) for sample in node.samples() if sample.value]
    [('peerd_gateway_clients', 3.0), ('peerd_rescues_total', 4.0)]
    """

    def __init__(self) -> None:
        self._counters = dict.fromkeys(counters_from_start(), 0.0)
        self._histograms: dict[SeriesKey, Histogram] = {}
        self._gauges: dict[int, dict[SeriesKey, float]] = {}
        self._handlers: set[tuple[str, ...]] = set()
        self._label_values: dict[str, set[tuple[str, ...]]] = {}

    def add(self, report: Iterable[Sample], pid: int) -> None:
        """Add what a process has reported; its samples are valid."""
        for sample in report:
            key = self._admit(sample.key)
            match sample.kind:
                case MetricKind.COUNTER:
                    self._counters[key] = self._counters.get(key, 0.0) + sample.value
                case MetricKind.HISTOGRAM:
                    self._histograms.setdefault(key, Histogram()).merge(sample.histogram)
                case _:
                    self._gauges.setdefault(pid, {})[key] = sample.value

    def remove_process(self, pid: int) -> None:
        """Drop the gauges of a process that has ended; what it has counted stays."""
        self._gauges.pop(pid, None)

    def samples(self) -> list[Sample]:
        """The metrics of the node, in the order of their series."""
        found = [Sample(*key, value) for key, value in self._counters.items()]
        found += [sample_of(*key, histogram) for key, histogram in self._histograms.items()]
        found += [Sample(*key, value) for key, value in self._merged_gauges().items()]
        return sorted(found, key=lambda sample: sample.key)

    def _merged_gauges(self) -> dict[SeriesKey, float]:
        merged: dict[SeriesKey, float] = {}
        for gauges in self._gauges.values():
            for key, value in gauges.items():
                is_largest = FAMILIES[key.name].kind is MetricKind.LARGEST
                merged[key] = max(merged.get(key, 0.0), value) if is_largest else merged.get(key, 0.0) + value
        return merged

    def _admit(self, key: SeriesKey) -> SeriesKey:
        """The series itself while there is room for it, else the one for all others."""
        if FAMILIES[key.name].labels[:2] != ("queue", "name"):
            known = self._label_values.setdefault(key.name, set())
            return key if _has_room(known, key.labels, MOST_SERIES_OF_METRIC) else key.as_other
        if _has_room(self._handlers, key.labels[:2], MOST_HANDLERS_SHOWN):
            return key
        others = key.as_other
        queues = self._label_values.setdefault("(queues of others)", set())
        return others if _has_room(queues, others.labels[:1], MOST_SERIES_OF_METRIC) else others.as_other


def _has_room(known: set[tuple[str, ...]], labels: tuple[str, ...], most: int) -> bool:
    """Whether labels are among so many known ones, or can be added to them."""
    if labels in known or len(known) < most:
        known.add(labels)
        return True
    return False


def counters_from_start() -> Iterator[SeriesKey]:
    """Counters that are shown before anything was counted: Prometheus does not see the increase to a first value."""
    for name, family in FAMILIES.items():
        if family.kind is MetricKind.COUNTER and not family.labels:
            yield SeriesKey(name, ())
    for cause in DEATH_CAUSES:
        yield SeriesKey("peerd_deaths_total", (cause,))
    for alert in AlertKind:
        yield SeriesKey("peerd_alerts_total", (alert.value,))


class MetricsPage(msgspec.Struct):
    """A part of the metrics of a node, since an answer has a largest size; `after` is what the next request gives."""

    samples: list[Any]
    after: SeriesKey | None = None


def page_of(samples: Sequence[Sample], after: SeriesKey | None) -> MetricsPage:
    """The next samples in the order of their series.

    >>> page_of([Sample("peerd_claimed_tasks_total"), Sample("peerd_rescues_total")], None).after
    """
    rest = [sample for sample in samples if after is None or sample.key > after]
    chunk = next(in_chunks(rest), [])
    return MetricsPage(chunk, None if len(chunk) == len(rest) else rest[len(chunk) - 1].key)


class MetricsNotAvailable(PeerdError, RuntimeError):
    """The metrics of the node cannot be read."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the metrics of this node cannot be read from its agent: {reason}")


class NotServedByNode(PeerdError, LookupError):
    """The app is not served by a process of a node, so there is no node whose metrics it could show."""

    def __init__(self) -> None:
        super().__init__("no process of a node serves this app, so it has no node to show the metrics of")


async def read_node_metrics(request: Callable[[object], Awaitable[Any]]) -> list[Sample]:
    """Read all pages.

    Args:
        request: sends the agent a request for metrics with these data, and returns its answer.

    Raises:
        MetricsNotAvailable: the agent has answered something else.
    """
    found: list[Sample] = []
    after: object = None
    for _ in range(MAX_PAGES):
        answer = await request({"after": after})
        try:
            page = msgspec.convert(answer, MetricsPage)
            found += parse_samples(page.samples)
        except msgspec.ValidationError as error:
            raise MetricsNotAvailable(f"its answer is none ({error})") from error
        if page.after is None:
            return found
        after = page.after
    raise MetricsNotAvailable(f"they have more than {MAX_PAGES} pages")
