"""Alerts: incidents that are reported to people, and the limit of their rate. Pure values."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from peerd.domain.duration import format_duration, parse_duration
from peerd.domain.quoting import quoted


class AlertKind(StrEnum):
    """The subject of an alert."""

    CRASH_LOOP = "crash-loop"  # a process keeps failing
    EXCEPTION = "exception"  # in the agent: a component failed, or an exception was not caught
    TAINTED = "tainted"
    """A process is replaced after an uncaught exception, or for a handler that does not end after its time-out."""
    HUNG = "hung"  # a process is replaced because its event loop did not answer
    SILENT = "silent"  # a process is killed because no frame came from it any more
    MASTER_DIED = "master-died"  # the master of a node was killed or crashed; the node ends
    RELOAD_ABANDONED = "reload-abandoned"  # a new generation does not boot; the old one stays
    DEAD_TASKS = "dead-tasks"
    INACTIVE_NODES = "inactive-nodes"
    PINNED_TASKS = "pinned-tasks"  # tasks wait for a node that stays silent
    FAILED_RUNS = "failed-runs"  # a run of a schedule failed, or was lost
    BACKLOG = "backlog"  # the oldest pending task of a queue has been due for too long
    UNSERVED_QUEUE = "unserved-queue"  # tasks wait in a queue that no process has ever served
    DATABASE_AWAY = "database-away"
    RECOVERED = "recovered"  # a condition that was reported is over
    COPIES_AT_RISK = "copies-at-risk"  # files have had fewer copies than wanted for longer than the grace
    FILES_UNREADABLE = "files-unreadable"  # all copies of files are on disks that are away
    FILES_LOST = "files-lost"  # no disk has a copy of a file any more
    DISK_FULL = "disk-full"  # of what may be used of a disk, little or nothing is left
    DISK_UNUSABLE = "disk-unusable"  # a disk is missing, refused, read-only, or fails
    BAD_COPIES = "bad-copies"  # copies were found to be damaged or missing
    REPAIR_BRAKE = "repair-brake"  # the disks of too many nodes are away at once: nothing is repaired
    LONG_READ_VIEW = "long-read-view"  # something in the database slows every claim
    TEST = "test"  # sent by `peerd alerts test`, to every hook


class Alert(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An alert.

    Args:
        alert: its kind.
        text: for people.
        node: where it was detected.
        at: when, by that node's clock.
        slot: the process that it is about, or that has detected it.
        pid: the same.
        data: for programs.
        suppressed: how many of this kind were not sent since the one before, because of `at_most`.
    """

    alert: str
    text: str
    node: str
    at: datetime
    slot: str | None = None
    pid: int | None = None
    data: dict[str, Any] = {}
    suppressed: int = 0

    @property
    def sentence(self) -> str:
        """The text, with the number of those that were not sent.

        >>> Alert(alert="test", text="all is lost", node="a", at=datetime.min, suppressed=3).sentence
        'all is lost (and 3 more of this kind since the last that was sent)'
        """
        if not self.suppressed:
            return self.text
        return f"{self.text} (and {self.suppressed:,} more of this kind since the last that was sent)"


_RATE = re.compile(r"(\d{1,6})\s+(?:per|in)\s+(.+)")


@dataclass(frozen=True, slots=True)
class AlertRate:
    """A number of alerts in a number of seconds.

    >>> AlertRate.parse("3 per 5m")
    AlertRate(count=3, seconds=300.0)
    >>> str(AlertRate(3, 300.0))
    '3 per 5m'
    """

    count: int
    seconds: float

    @classmethod
    def parse(cls, text: object) -> AlertRate:
        """A rate from its text; raises ValueError for anything else."""
        if isinstance(text, AlertRate):
            return text
        found = _RATE.fullmatch(text.strip()) if isinstance(text, str) else None
        if found is None or int(found[1]) < 1:
            raise ValueError(f"{quoted(text)} is no rate: write a number and a time, such as '1 per 5m'")
        seconds = parse_duration(found[2])
        if seconds <= 0:
            raise ValueError("the time must be longer than 0")
        return cls(int(found[1]), seconds)

    def __str__(self) -> str:
        return f"{self.count} per {format_duration(self.seconds)}"


@dataclass(slots=True)
class AlertRateLimiter:
    """Admits a number of each kind in any span of time, and counts the others. Times are monotonic, in seconds.

    >>> limit = AlertRateLimiter(AlertRate(1, 60.0))
    >>> [limit.admit("dead-tasks", now) for now in (0.0, 1.0, 2.0, 60.0, 61.0)]
    [0, None, None, 2, None]
    >>> limit.admit("crash-loop", 61.0)
    0
    """

    rate: AlertRate
    _admitted: dict[str, deque[float]] = field(default_factory=dict)
    _suppressed: dict[str, int] = field(default_factory=dict)

    def admit(self, kind: str, now: float) -> int | None:
        """Admit one; return how many of its kind were suppressed before it, or None when this one is."""
        admitted = self._admitted.setdefault(kind, deque())
        while admitted and now - admitted[0] >= self.rate.seconds:
            admitted.popleft()
        if len(admitted) >= self.rate.count:
            self._suppressed[kind] = self._suppressed.get(kind, 0) + 1
            return None
        admitted.append(now)
        return self._suppressed.pop(kind, 0)

    def wait(self, kind: str, now: float) -> float:
        """Seconds until a kind of which one was suppressed is admitted again."""
        return max(0.0, self._admitted[kind][0] + self.rate.seconds - now)

    def release(self, kind: str, now: float) -> int:
        """Admit the latest one that was suppressed, whatever the rate is; return how many others of its kind were."""
        self._admitted[kind].append(now)
        return self._suppressed.pop(kind, 1) - 1
