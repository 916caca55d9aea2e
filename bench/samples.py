"""What a run measures, raw; and the medians of it.

The tags are the names in saved runs, which later revisions read, and earlier ones in bench.revisions.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median

import msgspec


class TimingSample(msgspec.Struct, kw_only=True, tag="Timing"):
    """Some tasks went through one measurement in so many seconds.

    ``by`` is who did it: ``bare`` (the driver on a bare table), ``same`` (the driver on peerd's table), ``peerd``, or
    another queue. ``cpu`` are the seconds of the process that did it; ``idle`` is what the machine's processors had
    left, where that was looked at.
    """

    database: str
    measurement: str
    batch: int
    by: str
    tasks: int
    round: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    idle: float | None = None
    shares: tuple[int, ...] = ()
    """How many of the tasks each process had, where there were several."""

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


class PickUp(msgspec.Struct, kw_only=True, tag=True):
    """From the call of enqueue to the first line of the handler, on a worker that has nothing else to do."""

    database: str
    by: str
    milliseconds: float


class FairnessWait(msgspec.Struct, kw_only=True, tag="Wait"):
    """How long a task waited while a place was free, of several processes with one place each."""

    database: str
    milliseconds: float


class Idle(msgspec.Struct, kw_only=True, tag=True):
    """What a whole node that has nothing to do asks its database."""

    database: str
    seconds: float
    statements: int
    kinds: Mapping[str, int]
    """By their first word."""


class ReadCounts(msgspec.Struct, kw_only=True):
    """What a claim touched."""

    rows: int | None = None
    locks: int | None = None
    pages: int | None = None


class Shape(msgspec.Struct, kw_only=True, tag=True):
    """Claims of a batch on a table of some size and shape, in turns with claims on one that holds nothing else.

    ``milliseconds`` and ``rows_read``, ``row_locks``, ``pages`` of a claim; the latter where the database tells them.
    """

    database: str
    shape: str
    rows: int
    batch: int
    milliseconds: tuple[float, ...]
    empty_milliseconds: tuple[float, ...]
    read: ReadCounts
    empty_read: ReadCounts


class ClaimsDuringChore(msgspec.Struct, kw_only=True, tag="Beside"):
    """Claims before, and beside, a chore of the manager's that has many rows to treat."""

    database: str
    chore: str
    rows: int
    seconds: float
    before_milliseconds: tuple[float, ...]
    milliseconds: tuple[float, ...]


class MeasurementFailure(msgspec.Struct, kw_only=True, tag="Failure"):
    """Something that was to be measured, and was not."""

    database: str
    what: str
    reason: str


Sample = TimingSample | PickUp | FairnessWait | Idle | Shape | ClaimsDuringChore | MeasurementFailure


class Ratio(msgspec.Struct, frozen=True):
    """The median of the rounds, and the extremes."""

    middle: float
    least: float
    most: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Ratio | None:
        """Of at least one round."""
        return cls(median(ratios), min(ratios), max(ratios)) if ratios else None

    def __str__(self) -> str:
        return f"{short(self.middle)} ({short(self.least)}–{short(self.most)})"


Key = tuple[str, str, int, str]
"""Database, measurement, batch, by."""


class Timings:
    """All timings of a run."""

    def __init__(self, timings: Iterable[TimingSample]) -> None:
        self._timings: dict[Key, list[TimingSample]] = {}
        for one in timings:
            self._timings.setdefault((one.database, one.measurement, one.batch, one.by), []).append(one)

    def rate(self, database: str, measurement: str, batch: int, by: str) -> float | None:
        """The median of the rounds, in tasks a second; None where it was not measured."""
        found = self.of((database, measurement, batch, by))
        return median(one.rate for one in found) if found else None

    def cpu(self, database: str, measurement: str, batch: int, by: str) -> float | None:
        """The median of the rounds, in seconds of the measuring process's own time for a task."""
        found = self.of((database, measurement, batch, by))
        return median(one.cpu / one.tasks for one in found) if found else None

    def ratio(self, ours: Key, theirs: Key) -> Ratio | None:
        """The rate of one by that of another: of each round, whose parts ran beside each other."""
        beside = {one.round: one.rate for one in self.of(theirs)}
        return Ratio.of([one.rate / beside[one.round] for one in self.of(ours) if one.round in beside])

    def batches(self, database: str, measurement: str, by: str = "peerd") -> Sequence[int]:
        """The batches in which this was measured, smallest first."""
        return sorted({key[2] for key in self._timings if (*key[:2], key[3]) == (database, measurement, by)})

    def __iter__(self) -> Iterator[Key]:
        """All that was measured, in the order of the measuring."""
        return iter(self._timings)

    def of(self, key: Key) -> Sequence[TimingSample]:
        """All rounds of one measurement."""
        return self._timings.get(key, [])


def short(value: float) -> str:
    """A figure with three digits that matter.

    >>> [short(0.0834), short(2.517), short(31.4), short(1234.5)]
    ['0.08', '2.52', '31.4', '1,234']
    """
    return f"{value:,.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}"


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that this share of all does not exceed.

    >>> percentile([5.0, 1.0, 3.0], 0.5)
    3.0
    """
    ranked = sorted(values)
    return ranked[min(int(share * len(ranked)), len(ranked) - 1)]
