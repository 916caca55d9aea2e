"""The metrics of a node: its agent adds up what the processes report, and others read the sum page by page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from peerd.domain.alert import AlertKind
from peerd.domain.attempt_totals import Histogram
from peerd.domain.errors import PeerdError
from peerd.runtime.metrics.families import DEATH_CAUSES, FAMILIES, MetricKind
from peerd.runtime.metrics.registry import Sample, SeriesKey, in_chunks, parse_samples, sample_of

MOST_HANDLERS_SHOWN: Final = 200
"""Handlers of a node that have series of their own. Each has up to 2 × 30 of histograms, and one for each outcome."""
MOST_SERIES_OF_METRIC: Final = 200
"""The same for the label values of any other metric."""
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
        self._handlers: set[tuple[str, str]] = set()
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
        labels = FAMILIES[key.name].labels
        if labels[:2] == ("queue", "name"):
            handler = (key.labels[0], key.labels[1])
            if handler not in self._handlers and len(self._handlers) < MOST_HANDLERS_SHOWN:
                self._handlers.add(handler)
            if handler in self._handlers:
                return key
            others = key.as_other
            queues = self._label_values.setdefault("(queues of others)", set())
            if len(queues) < MOST_SERIES_OF_METRIC:
                queues.add((others.labels[0],))
            return others if (others.labels[0],) in queues else others.as_other
        known = self._label_values.setdefault(key.name, set())
        if key.labels not in known and len(known) >= MOST_SERIES_OF_METRIC:
            return key.as_other
        known.add(key.labels)
        return key


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
    after: tuple[str, tuple[str, ...]] | None = None


def page_of(samples: Sequence[Sample], after: SeriesKey | None) -> MetricsPage:
    """The next samples in the order of their series.

    >>> page_of([Sample("peerd_claimed_tasks_total"), Sample("peerd_rescues_total")], None).after
    """
    rest = [sample for sample in samples if after is None or sample.key > after]
    chunk = next(in_chunks(rest), [])
    last = None if len(chunk) == len(rest) else (rest[len(chunk) - 1].name, rest[len(chunk) - 1].labels)
    return MetricsPage(chunk, last)


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
