"""A schedule, and the decisions about its ticks. Pure: the time is passed in, and is the database's."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, Literal

import msgspec

from peerd.domain.duration import format_duration
from peerd.domain.errors import InvalidSchedule
from peerd.domain.quoting import quoted
from peerd.domain.task import NewTask
from peerd.domain.trigger import MILLISECOND, Cron, Interval, Trigger

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
        """Its trigger; None: it ticks at the start only, or as its class decides."""
        if self.interval is not None:
            return Interval(self.interval)
        return None if self.cron is None else Cron(self.cron, self.timezone)

    @cached_property
    def text(self) -> str:
        """Its JSON without defaults."""
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
