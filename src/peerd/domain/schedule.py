"""A schedule as a value, and what is decided about its ticks. Pure: the time is passed in, and is the database's."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
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
MAX_WAITING: Final = 100
"""Ticks of one schedule that wait for an earlier run to end; what comes then is skipped."""
DEFAULT_GRACE: Final = 60.0
"""Seconds that a tick may be late and is not a misfire."""


class RunStatus(StrEnum):
    """What became of a tick, or of somebody's wish to run a schedule by hand."""

    WAITING = "waiting"
    """Until an agent takes it, or until an earlier run has ended."""
    RUNNING = "running"
    DONE = "done"
    ENQUEUED = "enqueued"
    """Its task is in the table."""
    FAILED = "failed"
    """The function raised an exception, or could not be imported."""
    TIMEOUT = "timeout"
    DIED = "died"
    """The worker process died while it ran."""
    CANCELED = "canceled"
    """The worker process had to leave before it had ended."""
    LOST = "lost"
    """The node that took it went away."""
    REFUSED = "refused"
    """No worker process could take it."""
    SKIPPED = "skipped"
    """An earlier run was still going on."""
    MISSED = "missed"
    """Nobody was there when it was due, and it was too late afterwards."""


UNFINISHED_STATUSES: Final = (RunStatus.WAITING, RunStatus.RUNNING)
"""The others are ends."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True, dict=True, omit_defaults=True):
    """What a section ``[schedules.NAME]`` says. Durations are in seconds.

    Raises:
        InvalidSchedule: keys that do not go together.

    >>> Schedule(name="refresh", run="studio.jobs:refresh", interval=10.0).trigger
    Interval(seconds=10.0)
    """

    name: str
    type: str = CLUSTER
    """``all``, ``worker``, ``cluster``; or the entry point of a class that decides by itself."""
    run: str | None = None
    args: list[Any] | dict[str, Any] = msgspec.field(default_factory=list)
    workers: tuple[str, ...] | None = None
    """Kinds whose processes may run it; None: all."""
    queue: str | None = None
    task: str = ""
    body: str | None = None
    """JSON text."""
    limit_key: str | None = None
    """Of the task."""
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
            longer = f"{format_duration(self.jitter)} is longer than the interval: ticks would overtake each other"
            raise InvalidSchedule("jitter", longer)
        if self.type not in (ALL, WORKER, CLUSTER) and not self.is_custom:
            known = "'all', 'worker', 'cluster', or a class of your own, 'studio.strategies:Mine'"
            raise InvalidSchedule("type", f"{quoted(self.type)} is none of {known}")
        if self.queue is not None:
            self._refuse_task_only_fields()
            NewTask(queue=self.queue, name=self.task, body=self.body, limit_key=self.limit_key)
        elif self.limit_key is not None:
            raise InvalidSchedule(
                "limit_key", "is for a task that is enqueued; leave it out, or give queue instead of run"
            )

    def _refuse_task_only_fields(self) -> None:
        if self.type == ALL:
            raise InvalidSchedule("type", "'all' is for functions; a task is enqueued once, whoever runs it")
        for field in ("args", "workers", "timeout"):
            if getattr(self, field):
                raise InvalidSchedule(field, "is for functions; give it to the task, or to its handler")

    @property
    def is_custom(self) -> bool:
        """Whether a class of the user decides when it ticks and who runs it."""
        return ":" in self.type

    @cached_property
    def trigger(self) -> Trigger | None:
        """When it ticks; None: at the start only, or when its class says so."""
        if self.interval is not None:
            return Interval(self.interval)
        return None if self.cron is None else Cron(self.cron, self.timezone)

    @cached_property
    def text(self) -> str:
        """It, as JSON without what is usual."""
        return msgspec.json.encode(self, order="deterministic").decode()

    @cached_property
    def fingerprint(self) -> str:
        """Tells whether two nodes mean the same."""
        return hashlib.blake2s(self.text.encode(), digest_size=8).hexdigest()


class WaitForTick(msgspec.Struct, frozen=True):
    """Nothing is due before this moment; None: ever."""

    until: datetime | None


class FireTick(msgspec.Struct, frozen=True):
    """A tick is due; the row's next one is ``following``. Ticks before it that nobody saw are left out."""

    tick: datetime
    following: datetime | None


class MissTick(msgspec.Struct, frozen=True):
    """A tick is not made up for: it is ``late`` seconds late."""

    tick: datetime
    following: datetime | None
    late: float


TickDecision = WaitForTick | FireTick | MissTick


def decide_tick(
    schedule: Schedule, next_at: datetime | None, anchor: datetime, now: datetime, seed: str
) -> TickDecision:
    """What to do about a schedule's next tick. Of several that have come meanwhile, the last one counts.

    Args:
        schedule: its definition.
        next_at: the tick that has not been seen to yet; None: none comes any more.
        anchor: from which intervals count.
        now: by the database's clock.
        seed: whose clock it is; clocks of different seeds spread their jitter differently.
    """
    trigger = schedule.trigger
    if next_at is None or trigger is None:
        return WaitForTick(None)

    def due(tick: datetime) -> datetime:
        return tick + tick_jitter(schedule.jitter, seed, tick)

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
    """How much later than its time a tick is seen to: from nothing to ``jitter`` seconds.

    It is computed rather than drawn, so that all nodes agree about a tick of the cluster.
    """
    if not jitter:
        return timedelta()
    drawn = hashlib.blake2s(f"{seed} {tick.isoformat()}".encode(), digest_size=4).digest()
    return round(jitter * 1000 * int.from_bytes(drawn, "big") / 2**32) * MILLISECOND


def initial_run_status(overlap: Overlap, *, busy: bool, waiting: int) -> RunStatus:
    """How a run begins for which the time has come.

    Args:
        overlap: what the schedule says.
        busy: whether an earlier run of it goes on.
        waiting: how many wait for that already.

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
