"""What a run measures, raw; and the medians of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Literal

import msgspec

By = Literal["bare", "same", "peerd"]
"""Who did it: the driver on a bare table, the driver on peerd's table, peerd."""


class Timing(msgspec.Struct, kw_only=True):
    """Some tasks went through one measurement in so many seconds; ``cpu`` are those of the process that did it."""

    database: str
    measurement: str
    batch: int
    by: By
    tasks: int
    round: int = 0
    seconds: float = 0.0
    cpu: float = 0.0

    @property
    def rate(self) -> float:
        """Tasks in a second."""
        return self.tasks / self.seconds

    @contextmanager
    def running(self) -> Iterator[None]:
        """Add the time that the block takes."""
        began, used = time.perf_counter(), time.process_time()
        yield
        self.seconds += time.perf_counter() - began
        self.cpu += time.process_time() - used


class PickUp(msgspec.Struct, kw_only=True):
    """From the call of enqueue to the first line of the handler, on an idle node."""

    database: str
    milliseconds: float
    enqueued_by: Literal["client", "node"] = "client"
    """A program of its own, or a process of another node."""


class Timings:
    """All timings of a run."""

    def __init__(self, timings: Iterable[Timing]) -> None:
        self._timings = list(timings)

    def rate(self, database: str, measurement: str, batch: int, by: By) -> float | None:
        """The median of the rounds, in tasks a second; None where it was not measured."""
        found = self._of(database, measurement, batch, by)
        return median(one.rate for one in found) if found else None

    def cpu(self, database: str, measurement: str, batch: int, by: By) -> float | None:
        """The median of the rounds, in seconds of the measuring process's own time for a task."""
        found = self._of(database, measurement, batch, by)
        return median(one.cpu / one.tasks for one in found) if found else None

    def ratio(self, database: str, measurement: str, batch: int, to: tuple[str, By]) -> float | None:
        """The rate of peerd by that of a floor: of each round, whose parts ran beside each other, then the median."""
        floor = {one.round: one.rate for one in self._of(database, to[0], batch, to[1])}
        ours = self._of(database, measurement, batch, "peerd")
        ratios = [one.rate / floor[one.round] for one in ours if one.round in floor]
        return median(ratios) if ratios else None

    def batches(self, database: str, measurement: str) -> Sequence[int]:
        """The batches in which this was measured, smallest first."""
        return sorted(
            {one.batch for one in self._timings if one.database == database and one.measurement == measurement}
        )

    def _of(self, database: str, measurement: str, batch: int, by: By) -> list[Timing]:
        wanted = (database, measurement, batch, by)
        return [one for one in self._timings if (one.database, one.measurement, one.batch, one.by) == wanted]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that this share of all does not exceed.

    >>> percentile([5.0, 1.0, 3.0], 0.5)
    3.0
    """
    ranked = sorted(values)
    return ranked[min(int(share * len(ranked)), len(ranked) - 1)]
