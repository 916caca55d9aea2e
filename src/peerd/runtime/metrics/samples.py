"""Samples: the numbers of metrics at a moment, or their growth, as messages between processes carry them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from peerd.domain.attempt_totals import BIN_COUNT, Histogram
from peerd.runtime.metrics.families import FAMILIES, MetricKind
from peerd.runtime.observability.attempt_statistics import OTHER

MAX_LABEL: Final = 200
"""Characters of a label's value."""
MAX_CHUNK: Final = 64 * 1024
"""Bytes of the samples of one message, so that the master never copies much at once."""


class SeriesKey(NamedTuple):
    """One series: a metric, and the values of its labels."""

    name: str
    labels: tuple[str, ...]

    @property
    def as_other(self) -> SeriesKey:
        """The series that counts all that have no place of their own: queue and outcome stay, names do not."""
        labels = FAMILIES[self.name].labels
        kept = {"outcome"} | ({"queue"} if "name" in labels and self.labels[labels.index("name")] != OTHER else set())
        pairs = zip(labels, self.labels, strict=True)
        return SeriesKey(self.name, tuple(value if label in kept else OTHER for label, value in pairs))


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """The number of one series.

    `value` is the number, of a histogram the sum of its durations. `bins` are place and count of each of its bins that
    is not empty.
    """

    name: str
    labels: tuple[str, ...] = ()
    value: float = 0.0
    bins: tuple[tuple[int, int], ...] = ()

    @property
    def key(self) -> SeriesKey:
        """Its series."""
        return SeriesKey(self.name, self.labels)

    @property
    def kind(self) -> MetricKind:
        """Of its metric."""
        return FAMILIES[self.name].kind

    @property
    def histogram(self) -> Histogram:
        """Its bins as a histogram."""
        histogram = Histogram(sum=self.value)
        for place, count in self.bins:
            histogram.counts[place] += count
        return histogram


def sample_of(name: str, labels: tuple[str, ...], histogram: Histogram) -> Sample:
    """The sample of a histogram.

    >>> sample_of("peerd_claim_seconds", (), Histogram.of([0.001, 0.001])).bins
    ((0, 2),)
    """
    bins = tuple((place, count) for place, count in enumerate(histogram.counts) if count)
    return Sample(name, labels, histogram.sum, bins)


def is_valid(sample: Sample) -> bool:
    """Whether a sample that a process has sent can be counted: it is of a known metric, and has possible values."""
    family = FAMILIES.get(sample.name)
    if family is None or len(sample.labels) != len(family.labels) or not math.isfinite(sample.value):
        return False
    if sample.value < 0 or any(len(label) > MAX_LABEL for label in sample.labels):
        return False
    return all(0 <= place < BIN_COUNT and count >= 0 for place, count in sample.bins)


def in_chunks(samples: Iterable[Sample], size: int = MAX_CHUNK) -> Iterator[list[Any]]:
    """Samples as values of messages, of which none has more bytes than `size` as JSON, or one sample.

    >>> [len(chunk) for chunk in in_chunks([Sample("peerd_rescues_total")] * 5, size=70)]
    [2, 2, 1]
    """
    chunk: list[Any] = []
    used = 0
    for sample in samples:
        bytes_of_it = len(msgspec.json.encode(sample)) + 1
        if chunk and used + bytes_of_it > size:
            yield chunk
            chunk, used = [], 0
        chunk.append(msgspec.to_builtins(sample))
        used += bytes_of_it
    if chunk:
        yield chunk


def parse_samples(data: object) -> list[Sample]:
    """The valid ones among the samples of a message.

    Raises:
        msgspec.ValidationError: it has something else than samples.
    """
    return [sample for sample in msgspec.convert(data, list[Sample]) if is_valid(sample)]
