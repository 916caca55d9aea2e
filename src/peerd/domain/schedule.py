"""A schedule, its ticks, and the decisions about them. Pure: the time is passed in, and is the database's.

Ticks are instants in UTC, at an interval or by a cron expression. Each is computed from the definition and not from the
tick before it, so that ticks do not drift: an interval counts from its anchor, an expression from the calendar of its
time zone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache, cached_property
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from peerd.domain.errors import InvalidSchedule
from peerd.domain.quoting import quoted
from peerd.domain.task import LATEST, NewTask
from peerd.domain.units import format_duration

MIN_INTERVAL: Final = 0.1
"""Seconds between two ticks."""
MINUTE: Final = timedelta(minutes=1)
MILLISECOND: Final = timedelta(milliseconds=1)
"""The resolution of every database's clock; ticks lie on whole ones."""


class Interval(msgspec.Struct, frozen=True):
    """A tick at each multiple of an interval after an anchor, the anchor excluded.

    >>> anchor = datetime(2026, 1, 1, tzinfo=UTC)
    >>> Interval(5.5).after(anchor + timedelta(seconds=12), anchor).isoformat()
    '2026-01-01T00:00:16.500000+00:00'
    """

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds >= MIN_INTERVAL:
            raise InvalidSchedule("interval", f"{self.seconds:g} s is shorter than {MIN_INTERVAL:g} s")

    @property
    def step(self) -> timedelta:
        """The interval, in whole milliseconds."""
        return round(self.seconds * 1000) * MILLISECOND

    def after(self, moment: datetime, anchor: datetime) -> datetime | None:
        """The first tick later than this; None where there is none before the end of time (2038)."""
        elapsed_steps = max((moment - anchor) // self.step, 0)
        try:
            return _within_time(anchor + (elapsed_steps + 1) * self.step)
        except OverflowError:
            return None

    def latest(self, moment: datetime, anchor: datetime) -> datetime | None:
        """The last tick that is not later than this."""
        elapsed_steps = (moment - anchor) // self.step
        return anchor + elapsed_steps * self.step if elapsed_steps > 0 else None


class Cron(msgspec.Struct, frozen=True):
    """Ticks by an expression of five fields, or of six with the seconds first, in a time zone.

    Where the clocks of the zone change, Debian's cron is the model: a time that a day does not have ticks at once after
    the gap, and a time that a day has twice ticks once; an expression for every hour, or for every few minutes, ticks
    through the change.

    >>> cron = Cron("30 2 * * *", "Europe/Berlin")
    >>> cron.after(datetime(2026, 3, 28, 12, tzinfo=UTC)).isoformat()  # there is no 2:30 on the 29th
    '2026-03-29T01:00:00+00:00'
    """

    expression: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        load_time_zone(self.timezone)
        try:
            next(CronSim(self.expression, datetime(2026, 1, 1, tzinfo=UTC)))
        except (CronSimError, ValueError, RecursionError) as error:
            example = "write five fields, '0 3 * * *', or six with the seconds first, '30 0 3 * * *'"
            raise InvalidSchedule("cron", f"{quoted(self.expression)}: {str(error).lower()}; {example}") from None
        except StopIteration:
            raise InvalidSchedule("cron", f"{quoted(self.expression)} never comes") from None

    def after(self, moment: datetime, anchor: datetime | None = None) -> datetime | None:
        """The first tick after a moment; None if there is none."""
        return _within_time(next(self._ticks(moment), None))

    def latest(self, moment: datetime, anchor: datetime | None = None) -> datetime | None:
        """The last tick up to a moment; None if there is none."""
        found = next(self._ticks(moment, back=True), None)
        while found is not None and (later := self.after(found)) is not None and later <= moment:
            found = later  # in an hour that a day has twice, the reverse search skips the first one
        return found

    def _ticks(self, moment: datetime, *, back: bool = False) -> Iterator[datetime]:
        """Ticks after a moment, or back from it. CronSim gets no seconds: it follows Debian with five fields only."""
        start = (moment + (MINUTE if back else -MINUTE)).replace(second=0, microsecond=0)
        fields = " ".join(self.expression.split()[-5:])
        seconds = _seconds_of(self.expression)[:: -1 if back else 1]
        for minute in CronSim(fields, start.astimezone(load_time_zone(self.timezone)), reverse=back):
            for second in seconds:
                tick = minute.astimezone(UTC) + second
                if tick <= moment if back else tick > moment:
                    yield tick


Trigger = Interval | Cron


@cache
def load_time_zone(name: str) -> ZoneInfo:
    """A time zone; raises InvalidSchedule for one that this machine does not have."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        remedy = "write a name such as 'Europe/Berlin'; the names are those of the system's tzdata"
        raise InvalidSchedule("timezone", f"{quoted(name)} is no time zone here; {remedy}") from None


@cache
def _seconds_of(expression: str) -> tuple[timedelta, ...]:
    return tuple(
        timedelta(seconds=second) for second in sorted(CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC)).seconds)
    )


def _within_time(moment: datetime | None) -> datetime | None:
    return moment if moment is not None and moment < LATEST else None


# ---------------------------------------------------------------- schedules


Overlap = Literal["skip", "queue", "allow"]
Misfire = Literal["skip", "run_once"]

ALL, WORKER, CLUSTER = "all", "worker", "cluster"
LAST_MOMENT: Final = datetime.max.replace(tzinfo=UTC)
MAX_WAITING: Final = 100
"""Ticks of one schedule that wait for an earlier run to end; later ones are skipped."""
DEFAULT_GRACE: Final = 60.0
"""Seconds that a tick may be late without being a misfire."""


class RunStatus(StrEnum):
    """The state of a run: of a tick, or of a schedule that was run by hand."""

    WAITING = "waiting"  # for an agent, or for the end of an earlier run
    RUNNING = "running"
    DONE = "done"
    ENQUEUED = "enqueued"  # its task is in the table
    FAILED = "failed"  # the function raised an exception, or could not be imported
    TIMEOUT = "timeout"
    DIED = "died"  # the worker process died while it ran
    CANCELED = "canceled"  # the worker process ended before the run had
    LOST = "lost"  # the node that had taken it is gone
    REFUSED = "refused"  # no worker process could take it
    SKIPPED = "skipped"  # an earlier run had not ended
    MISSED = "missed"  # no agent was running when it was due, and it was too late afterwards


UNFINISHED_STATUSES: Final = (RunStatus.WAITING, RunStatus.RUNNING)


class Schedule(msgspec.Struct, frozen=True, kw_only=True, dict=True, omit_defaults=True):
    """A section ``[schedules.NAME]``. Durations are in seconds. Raises InvalidSchedule for keys that conflict.

    >>> Schedule(name="refresh", run="studio.jobs:refresh", interval=10.0).trigger
    Interval(seconds=10.0)
    """

    name: str
    type: str = CLUSTER  # ``all``, ``worker``, ``cluster``; or the entry point of a class with its own trigger
    run: str | None = None
    args: list[Any] | dict[str, Any] = msgspec.field(default_factory=list)
    workers: tuple[str, ...] | None = None  # kinds whose processes may run it; None: all of [workers]
    queue: str | None = None
    task: str = ""
    body: str | None = None  # JSON text
    limit_key: str | None = None
    interval: float | None = None
    cron: str | None = None
    timezone: str = "UTC"
    immediate: bool = False
    overlap: Overlap = "skip"
    misfire: Misfire = "skip"
    misfire_grace: float = DEFAULT_GRACE
    jitter: float = 0.0
    timeout: float | None = None
    enabled: bool = True

    def __post_init__(self) -> None:
        if (self.run is None) == (self.queue is None):
            raise InvalidSchedule("run", "give run, a function, or queue, for a task to enqueue: one of them")
        if self.interval is not None and self.cron is not None:
            raise InvalidSchedule("cron", "give interval or cron, not both")
        if self.trigger is None and not self.immediate and not self.is_custom:
            raise InvalidSchedule("interval", "when does it tick? Give interval or cron, or immediate = true")
        if isinstance(self.trigger, Interval) and self.jitter > self.trigger.seconds:
            problem = f"{format_duration(self.jitter)} is longer than the interval: ticks would overtake each other"
            raise InvalidSchedule("jitter", problem)
        if self.type not in (ALL, WORKER, CLUSTER) and not self.is_custom:
            known = "'all', 'worker', 'cluster', or a class of your own, 'studio.strategies:Mine'"
            raise InvalidSchedule("type", f"{quoted(self.type)} is none of {known}")
        if self.queue is not None:
            self._refuse_task_only_fields()
            NewTask(queue=self.queue, name=self.task, body=self.body, limit_key=self.limit_key)
        elif self.limit_key is not None:
            problem = "is for a task that is enqueued; leave it out, or give queue instead of run"
            raise InvalidSchedule("limit_key", problem)

    def _refuse_task_only_fields(self) -> None:
        if self.type == ALL:
            raise InvalidSchedule("type", "'all' is for functions; a task is enqueued once, whoever runs it")
        for field in ("args", "workers", "timeout"):
            if getattr(self, field):
                raise InvalidSchedule(field, "is for functions; give it to the task, or to its handler")

    @property
    def is_custom(self) -> bool:
        """Whether a class of the user decides when and where it runs."""
        return ":" in self.type

    @cached_property
    def trigger(self) -> Trigger | None:
        """The trigger of its ticks; None: it ticks at the start only, or as its class decides."""
        if self.interval is not None:
            return Interval(self.interval)
        return None if self.cron is None else Cron(self.cron, self.timezone)

    @cached_property
    def text(self) -> str:
        """The schedule as JSON without defaults."""
        return msgspec.json.encode(self, order="deterministic").decode()

    @cached_property
    def fingerprint(self) -> str:
        """A hash that is equal where two nodes have the same definition."""
        return hashlib.blake2s(self.text.encode(), digest_size=8).hexdigest()


class WaitForTick(msgspec.Struct, frozen=True):
    """No tick is due before this time; None: no tick comes any more."""

    until: datetime | None


class FireTick(msgspec.Struct, frozen=True):
    """A tick is due, and ``following`` is the next one. Earlier ticks that no agent fired are left out."""

    tick: datetime
    following: datetime | None


class MissTick(msgspec.Struct, frozen=True):
    """A tick is ``late`` seconds late, and is not made up for."""

    tick: datetime
    following: datetime | None
    late: float


TickDecision = WaitForTick | FireTick | MissTick


def decide_tick(
    schedule: Schedule, next_at: datetime | None, anchor: datetime, now: datetime, seed: str
) -> TickDecision:
    """Decide about the next tick of a schedule. Of several that are due, only the last one counts.

    Args:
        schedule: its definition.
        next_at: the first tick without a decision; None: no tick comes any more.
        anchor: from which intervals count.
        now: the database's clock.
        seed: of the jitter; different seeds spread it differently.
    """
    trigger = schedule.trigger
    if next_at is None or trigger is None:
        return WaitForTick(None)

    def due(tick: datetime) -> datetime:
        return tick + min(tick_jitter(schedule.jitter, seed, tick), LAST_MOMENT - tick)

    if now < due(next_at):
        return WaitForTick(due(next_at))
    tick = max(trigger.latest(now, anchor) or next_at, next_at)
    while tick > next_at and now < due(tick):
        tick = max(trigger.latest(tick - MILLISECOND, anchor) or next_at, next_at)
    following = trigger.after(tick, anchor)
    late = (now - due(tick)).total_seconds()
    if late > schedule.misfire_grace and schedule.misfire == "skip":
        return MissTick(tick, following, late)
    return FireTick(tick, following)


def tick_jitter(jitter: float, seed: str, tick: datetime) -> timedelta:
    """The delay of a tick, from 0 to ``jitter`` seconds: a hash, so that it is the same on all nodes."""
    if not jitter:
        return timedelta()
    digest = hashlib.blake2s(f"{seed} {tick.isoformat()}".encode(), digest_size=4).digest()
    return round(jitter * 1000 * int.from_bytes(digest, "big") / 2**32) * MILLISECOND


def initial_run_status(overlap: Overlap, *, busy: bool, waiting: int) -> RunStatus:
    """The first status of a run that is due, while ``waiting`` runs wait, and an earlier run is ``busy`` or not.

    >>> [str(initial_run_status(overlap, busy=True, waiting=2)) for overlap in ("skip", "queue", "allow")]
    ['skipped', 'waiting', 'running']
    """
    match overlap:
        case "allow":
            return RunStatus.RUNNING
        case "queue" if (busy or waiting) and waiting < MAX_WAITING:
            return RunStatus.WAITING
        case _:
            return RunStatus.SKIPPED if busy or waiting else RunStatus.RUNNING
