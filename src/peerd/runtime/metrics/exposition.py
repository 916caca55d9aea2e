"""Metrics of a node in the formats of Prometheus. Needs the extra `dashboard`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.registry import Collector

from peerd.domain.attempt_totals import BOUNDS, Histogram
from peerd.runtime.metrics.families import FAMILIES, MetricKind
from peerd.runtime.metrics.registry import Sample


class NodeCollector(Collector):
    """The samples of a node as metrics."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = sorted(samples, key=lambda sample: sample.key)

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        for name, samples in groupby(self._samples, key=lambda sample: sample.name):
            yield _metric(name, samples)


def expose(samples: Iterable[Sample], accept: str) -> tuple[bytes, str]:
    """The metrics in the format that an `Accept` header asks for, and the media type."""
    encode, content_type = choose_encoder(accept)
    return encode(_registry(samples)), content_type


def expose_as_text(samples: Iterable[Sample]) -> str:
    """The metrics in the text format."""
    return generate_latest(_registry(samples)).decode()


def buckets_of(histogram: Histogram, buckets: int) -> list[tuple[str, float]]:
    """The buckets of a histogram: every second bin, so that bucket i ends at 2^i ms, and one for all.

    >>> buckets_of(Histogram.of([0.001, 0.003, 100.0]), 3)
    [('0.001', 1), ('0.002', 1), ('0.004', 2), ('+Inf', 3)]
    """
    bounds = [(str(BOUNDS[place]), sum(histogram.counts[: place + 1])) for place in range(0, 2 * buckets, 2)]
    return [*bounds, ("+Inf", histogram.count)]


def _registry(samples: Iterable[Sample]) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(NodeCollector(samples))
    return registry


def _metric(name: str, samples: Iterable[Sample]) -> Metric:
    family = FAMILIES[name]
    made: Any = _FAMILY_CLASSES.get(family.kind, GaugeMetricFamily)(name, family.text, labels=family.labels)
    for sample in samples:
        labels = list(sample.labels)
        if family.kind is MetricKind.HISTOGRAM:
            made.add_metric(labels, buckets_of(sample.histogram, family.buckets), sum_value=sample.value)
        else:
            made.add_metric(labels, sample.value)
    metric: Metric = made
    return metric


_FAMILY_CLASSES = {MetricKind.COUNTER: CounterMetricFamily, MetricKind.HISTOGRAM: HistogramMetricFamily}
