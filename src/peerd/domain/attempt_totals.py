"""What a number of ended attempts come to: their outcomes, how long they waited and ran, and their time in slots.

Durations are histograms with fixed bounds, which are merged by adding: over processes, handlers and time. The bounds
are powers of the square root of two, from a millisecond to 26 hours, as those of OpenTelemetry's exponential histogram
of scale 1 and of Prometheus's native histogram of schema 1. A value is known to within 19 %.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
        """A histogram of its own with the same counts."""
        return Histogram(self.counts, self.sum)

    def since(self, earlier: Histogram) -> Histogram:
        """The durations that were counted after an earlier copy was made."""
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


OUTCOMES: Final = ("done", "failed", "timed_out", "dead", "canceled", "snoozed", "released")
"""Classes of outcomes, each a column of the table `statistics`."""
FAILURES: Final = ("failed", "timed_out", "dead")
CRASH_LABELS: Final = ("crash", "rescued")
"""Labels of attempts whose process died."""
FAILURE_LABELS: Final = ("failure", "dead", "timeout", *CRASH_LABELS)
"""Labels of attempts that failed, with a retry or without."""
_OUTCOME_OF_LABEL: Final[Mapping[str, str]] = {
    "done": "done",
    "timeout": "timed_out",
    "dead": "dead",
    "canceled": "canceled",
    "snoozed": "snoozed",
    "released": "released",
    "unknown": "released",
}


def outcome_of(label: str) -> str:
    """The class of an outcome, by the label of the attempt.

    >>> [outcome_of(label) for label in ("done", "failure", "timeout", "unknown")]
    ['done', 'failed', 'timed_out', 'released']
    """
    return _OUTCOME_OF_LABEL.get(label, "failed")


class AttemptTotals:
    """Ended attempts of one or several handlers. Totals are merged by adding.

    Attributes:
        outcomes: how many attempts had each of the `OUTCOMES`; those that none had may be missing.
        busy: seconds for which slots were occupied, by attempts that still run, too.
        wait: from the moment at which a task was due to its claim; not of released attempts.
        run: for which handlers ran; not of released attempts.
    """

    __slots__ = ("busy", "outcomes", "run", "wait")

    def __init__(
        self,
        outcomes: Mapping[str, int] | None = None,
        busy: float = 0.0,
        wait: Histogram | None = None,
        run: Histogram | None = None,
    ) -> None:
        self.outcomes = Counter(outcomes or {})
        self.busy = busy
        self.wait = wait or Histogram()
        self.run = run or Histogram()

    @property
    def attempts(self) -> int:
        """All attempts."""
        return sum(self.outcomes.values())

    @property
    def done(self) -> int:
        """Attempts that succeeded."""
        return self.outcomes["done"]

    @property
    def failures(self) -> int:
        """Attempts that failed, with a retry or without."""
        return sum(self.outcomes[name] for name in FAILURES)

    @property
    def failure_share(self) -> float | None:
        """Failures among the attempts that succeeded or failed; None if none did.

        >>> AttemptTotals({"done": 6, "failed": 1, "dead": 1, "snoozed": 90}).failure_share
        0.25
        """
        judged = self.done + self.failures
        return self.failures / judged if judged else None

    def merge(self, other: AttemptTotals) -> None:
        """Add all attempts of other totals."""
        self.outcomes.update(other.outcomes)
        self.busy += other.busy
        self.wait.merge(other.wait)
        self.run.merge(other.run)
