"""What a number of ended attempts come to: their outcomes, how long they waited and ran, and their time in slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from peerd.domain.histogram import Histogram

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
        wait: from the moment in which a task was due to that of its claim; not of released attempts.
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
