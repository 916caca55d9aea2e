"""Histograms of durations with fixed bounds, which are merged by adding: over processes, handlers and time.

The bounds are powers of the square root of two, from a millisecond to 26 hours, as those of OpenTelemetry's exponential
histogram of scale 1 and of Prometheus's native histogram of schema 1. A value is known to within 19 %.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final, Self

BIN_COUNT: Final = 54
BOUNDS: Final = tuple(2 ** (place / 2) / 1000 for place in range(BIN_COUNT))
"""The largest value of each bin, in seconds; the last bin holds all that is larger, too."""
_INNER_BOUNDS: Final = BOUNDS[:-1]


class Histogram:
    """How many durations there were of each size.

    Args:
        counts: of each bin; without them, all are 0.
        sum: of all durations, in seconds.

    >>> histogram = Histogram.of([0.5, 0.5, 0.5, 4.0])
    >>> histogram.count, histogram.sum, round(histogram.quantile(0.5), 1), round(histogram.quantile(0.99), 1)
    (4, 5.5, 0.5, 4.0)
    """

    __slots__ = ("counts", "sum")

    def __init__(self, counts: Sequence[int] = (0,) * BIN_COUNT, sum: float = 0.0) -> None:  # noqa: A002 - its name
        if len(counts) != BIN_COUNT:
            raise ValueError(f"a histogram has {BIN_COUNT} bins, not {len(counts)}")
        self.counts = list(counts)
        self.sum = sum

    @classmethod
    def of(cls, durations: Iterable[float]) -> Self:
        """The histogram of some durations, in seconds."""
        histogram = cls()
        for seconds in durations:
            histogram.add(seconds)
        return histogram

    @property
    def count(self) -> int:
        """How many durations there were."""
        return sum(self.counts)

    def add(self, seconds: float) -> None:
        """Count one duration; a negative one counts as 0."""
        if seconds > 0.0:
            self.sum += seconds
        self.counts[bisect_left(_INNER_BOUNDS, seconds)] += 1

    def merge(self, other: Histogram) -> None:
        """Count all durations of another one, too."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    def copy(self) -> Histogram:
        """One of its own with the same counts."""
        return Histogram(self.counts, self.sum)

    def since(self, earlier: Histogram) -> Histogram:
        """What was counted after an earlier copy of it."""
        counts = [late - early for late, early in zip(self.counts, earlier.counts, strict=True)]
        return Histogram(counts, self.sum - earlier.sum)

    def quantile(self, share: float) -> float | None:
        """The duration that a share of all does not exceed, in seconds; None of an empty histogram.

        It is interpolated within its bin by ratio, as the bounds grow.

        Args:
            share: from 0 to 1; 0.95 for the 95th percentile.
        """
        total = self.count
        if not total:
            return None
        rank, below = share * total, 0
        for place, count in enumerate(self.counts):
            if count and below + count >= rank:
                upper = BOUNDS[place]
                within = (rank - below) / count
                return upper * within if place == 0 else BOUNDS[place - 1] * (upper / BOUNDS[place - 1]) ** within
            below += count
        return BOUNDS[-1]
