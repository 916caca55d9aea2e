"""The answers of `client.statistics`: values that JSON can hold."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Self

import msgspec

from peerd.domain.attempt_totals import AttemptTotals, Histogram
from peerd.domain.lifecycle import Status
from peerd.operate.diagnostics.finding import Finding, Level, Verdict


class DurationFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in seconds, with quantiles that are exact to 19 %; None where there are none.

    Attributes:
        count: how many.
        mean: their arithmetic mean, which is exact.
        p50, p95, p99: what 50, 95 and 99 % of them do not exceed.
    """

    count: int
    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None

    @classmethod
    def of(cls, durations: Histogram) -> Self:
        """The figures of a histogram.

        >>> figures = DurationFigures.of(Histogram.of([1.0, 1.0, 4.0]))
        >>> figures.count, figures.mean, round(figures.p99)
        (3, 2.0, 4)
        """
        count = durations.count
        mean = durations.sum / count if count else None
        p50, p95, p99 = (durations.quantile(share) for share in (0.5, 0.95, 0.99))
        return cls(count=count, mean=mean, p50=p50, p95=p95, p99=p99)


class AttemptFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the attempts of some time.

    Attributes:
        seconds: of that time.
        done: attempts that succeeded.
        failed, timed_out, dead: that failed with a retry, by a time-out, and as the last one.
        canceled, snoozed: that ended so.
        released: tasks that their process released: it stopped, or did not know their handler.
        per_second: attempts in a second that succeeded.
        failure_share: of those that succeeded or failed; None if none did.
        busy: how many slots were occupied on average.
        wait: from the moment in which a task was due to its claim.
        run: for which handlers ran.
    """

    seconds: float
    done: int
    failed: int
    timed_out: int
    dead: int
    canceled: int
    snoozed: int
    released: int
    per_second: float
    failure_share: float | None
    busy: float
    wait: DurationFigures
    run: DurationFigures

    @classmethod
    def of(cls, totals: AttemptTotals, seconds: float) -> Self:
        """The figures of totals over some time."""
        outcomes = totals.outcomes
        return cls(
            seconds=seconds,
            done=outcomes["done"],
            failed=outcomes["failed"],
            timed_out=outcomes["timed_out"],
            dead=outcomes["dead"],
            canceled=outcomes["canceled"],
            snoozed=outcomes["snoozed"],
            released=outcomes["released"],
            per_second=totals.done / seconds,
            failure_share=totals.failure_share,
            busy=totals.busy / seconds,
            wait=DurationFigures.of(totals.wait),
            run=DurationFigures.of(totals.run),
        )

    @property
    def failures(self) -> int:
        """Attempts that failed in any way."""
        return self.failed + self.timed_out + self.dead


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts of a queue, a handler or a node; None where they are of several."""

    queue: str | None = None
    name: str | None = None
    node: str | None = None
    figures: AttemptFigures


class StatisticsRow(Attempts, frozen=True, kw_only=True):
    """The attempts of a group; ``before`` are those of the time that they are compared with, None without one."""

    before: AttemptFigures | None = None

    @property
    def slowdown(self) -> float | None:
        """How many times as long as before half of the attempts run; None if it is not known.

        >>> from peerd.domain.attempt_totals import AttemptTotals
        >>> slow, fast = (AttemptFigures.of(AttemptTotals(run=Histogram.of([run])), 60) for run in (4.0, 1.0))
        >>> round(StatisticsRow(figures=slow, before=fast).slowdown)
        4
        """
        before = None if self.before is None else self.before.run.p50
        return self.figures.run.p50 / before if self.figures.run.p50 is not None and before else None


def slowest_first(rows: Iterable[StatisticsRow]) -> list[StatisticsRow]:
    """In the order of `StatisticsRow.slowdown`; at the end the rows without one, the busiest first."""
    return sorted(rows, key=lambda row: (row.slowdown is None, -(row.slowdown or 0.0), -row.figures.busy))


class SeriesPoint(Attempts, frozen=True, kw_only=True):
    """A point of a time series: the attempts that ended from ``at`` on, for the seconds of its figures."""

    at: datetime


class ErrorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts of one handler that failed alike.

    Attributes:
        queue, name: of their tasks.
        error: the text of all of them, with marks for numbers, ids and addresses; or how their processes died.
        count: attempts.
        tasks: tasks with such an attempt.
        dead: those of them that are dead now.
        first_at, last_at: when the first and the last of these attempts ended.
        example: the text of the last one.
        example_task: its task's id.
        search: with this text, the queue and the name, a filter finds their tasks; None: no text finds them alone.
    """

    queue: str
    name: str
    error: str
    count: int
    tasks: int
    dead: int
    first_at: datetime
    last_at: datetime
    example: str
    example_task: int
    search: str | None


class ErrorGroups(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of errors, the greatest first.

    Attributes:
        groups: of the failed attempts that were examined.
        examined: how many these were.
        complete: they are all of the time; otherwise there are older ones.
    """

    groups: list[ErrorGroup]
    examined: int
    complete: bool


class QueueFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A queue in the overview.

    Attributes:
        name: its name.
        known: it has been served by a worker process, or paused.
        paused: nothing is claimed from it.
        counts: unfinished tasks of each status, as the latest sample has them.
        at_least: statuses with so many or more: counting ends at 10,000.
        oldest: seconds for which the oldest pending task had been due at the sample; None if none was.
        figures: of the last ten minutes; None if no attempt has ended.
    """

    name: str
    known: bool
    paused: bool
    counts: dict[Status, int]
    at_least: list[Status]
    oldest: float | None
    figures: AttemptFigures | None


class NodeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A node in the overview.

    Attributes:
        name: its name.
        state: active, draining, silent (its heartbeats ended without a stop) or stopped.
        slots: tasks that it runs at once.
        busy: slots that were occupied in the last ten minutes, on average.
        utilisation: the share of its slots that were; None if it has none.
    """

    name: str
    state: str
    slots: int
    busy: float
    utilisation: float | None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Whether all is well, and the figures of the last ten minutes.

    Attributes:
        now: the database's time.
        sampled_at: when the tasks were counted; None: never.
        verdict: red, yellow or green, by the worst finding.
        findings: what was examined, the worst first: what needs attention, with its remedy, and what is well.
        figures: of all attempts.
        counts, at_least, oldest: of all queues together; see `QueueFigures`.
        slots: tasks that all active nodes run at once.
        queues: those that have tasks or attempts, or were ever served or paused, by name.
        nodes: by name.
    """

    now: datetime
    sampled_at: datetime | None
    verdict: Verdict
    findings: list[Finding]
    figures: AttemptFigures
    counts: dict[Status, int]
    at_least: list[Status]
    oldest: float | None
    slots: int
    queues: list[QueueFigures]
    nodes: list[NodeFigures]

    @property
    def concerns(self) -> list[Finding]:
        """The findings that are not well, the worst first."""
        return [finding for finding in self.findings if finding.level is not Level.OK]
