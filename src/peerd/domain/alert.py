"""Alerts: incidents and conditions that are reported to people, their rate, and how they are kept. Pure values.

A condition, such as a backlog, is on until it has ended. What reports it repeats the report while it lasts; a condition
whose report is not repeated in time counts as unseen, since what would report its end may have died. An incident, such
as a crash, has no end: it is recent for an hour.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Self

import msgspec

from peerd.domain.quoting import quoted
from peerd.domain.units import format_duration, parse_duration

CONDITION_LASTS: Final = 4_500.0
"""Seconds for which a condition counts as on after a report that is repeated each quarter of an hour."""


class AlertKind(StrEnum):
    """The kind of an alert, and what all alerts of it have in common.

    Attributes:
        subject: what they are about: a value of their data, or their node or slot; empty: all are about the same.
        lasts: seconds for which a condition counts as on after its latest report; None: they are incidents.
        of_storage: whether they are conditions of storage; a ``recovered`` that names one in ``condition`` ends it.
    """

    subject: str
    lasts: float | None
    of_storage: bool

    def __new__(cls, name: str, subject: str = "", lasts: float | None = None, *storage: str) -> Self:
        kind = str.__new__(cls, name)
        kind._value_, kind.subject, kind.lasts, kind.of_storage = name, subject, lasts, bool(storage)
        return kind

    CRASH_LOOP = "crash-loop", "slot"  # a process keeps failing
    EXCEPTION = "exception", "component"  # in the agent: a component failed, or an exception was not caught
    TAINTED = "tainted", "slot"
    """A process is replaced after an uncaught exception, or for a handler that does not end after its time-out."""
    HUNG = "hung", "slot"  # a process is replaced because its event loop did not answer
    SILENT = "silent", "slot"  # a process is killed because no frame came from it any more
    MASTER_DIED = "master-died", "node"  # the master of a node was killed or crashed; the node ends
    RELOAD_ABANDONED = "reload-abandoned"  # a new generation does not boot; the old one stays
    DEAD_TASKS = "dead-tasks", "queue"
    INACTIVE_NODES = "inactive-nodes", "nodes", 1_800.0
    PINNED_TASKS = "pinned-tasks", "", 300.0  # tasks wait for a node that stays silent
    FAILED_RUNS = "failed-runs", "schedule"  # a run of a schedule failed, or was lost
    BACKLOG = "backlog", "queue", CONDITION_LASTS  # the oldest pending task of a queue has been due for too long
    UNSERVED_QUEUE = "unserved-queue", "queue", CONDITION_LASTS  # tasks wait, and no process has ever served the queue
    DATABASE_AWAY = "database-away", "node", 300.0
    RECOVERED = "recovered", "queue"  # a condition that was reported is over
    COPIES_AT_RISK = "copies-at-risk", "", CONDITION_LASTS, "storage"
    """Files have had fewer copies than wanted for longer than the grace."""
    FILES_UNREADABLE = "files-unreadable", "", CONDITION_LASTS, "storage"  # all copies of files are on disks away
    FILES_LOST = "files-lost", "", CONDITION_LASTS, "storage"  # no disk has a copy of a file any more
    DISK_FULL = "disk-full", "disk", CONDITION_LASTS, "storage"  # a disk has little or no space left for use
    DISK_UNUSABLE = "disk-unusable", "disk", CONDITION_LASTS, "storage"
    """A disk is missing, refused, read-only, or fails."""
    BAD_COPIES = "bad-copies", "disk"  # copies were found to be damaged or missing
    REPAIR_BRAKE = "repair-brake", "", CONDITION_LASTS, "storage"
    """The disks of too many nodes are away at once: nothing is repaired."""
    LONG_READ_VIEW = "long-read-view", "subject", 300.0  # something in the database slows every claim
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
        """Seconds until the rate admits a kind again that has suppressed alerts."""
        return max(0.0, self._admitted[kind][0] + self.rate.seconds - now)

    def release(self, kind: str, now: float) -> int:
        """Admit the latest suppressed alert of a kind beyond the rate; return how many others it had."""
        self._admitted[kind].append(now)
        return self._suppressed.pop(kind, 1) - 1


# ---------------------------------------------------------------- alerts that are kept


SUBJECTS: Final[Mapping[str, str]] = {kind: kind.subject for kind in AlertKind}
CONDITIONS: Final[Mapping[str, float]] = {kind: kind.lasts for kind in AlertKind if kind.lasts is not None}
"""The kinds that last, and the seconds for which one counts as on after its latest report."""
NOTICED_BY_ANY: Final = frozenset(kind for kind in CONDITIONS if SUBJECTS[kind] not in {"node", "nodes"})
"""Kinds of the whole cluster, which any node may notice; the data of those about a disk name its node."""
OF_STORAGE: Final = tuple(kind for kind in AlertKind if kind.of_storage)
ABOUT_DISKS: Final = tuple(kind for kind in AlertKind if kind.subject == "disk")
"""Kinds whose subject is the number of a disk."""
ENDED_BY_RECOVERY: Final = (AlertKind.BACKLOG, AlertKind.UNSERVED_QUEUE)
"""Kinds about a queue that ``recovered`` with the queue ends; without a queue it ends the outage of its node."""
ABOUT_QUEUES: Final = (*ENDED_BY_RECOVERY, AlertKind.DEAD_TASKS)
"""Kinds whose subject is a queue, or empty: all that an actor sees that is restricted to some queues."""
RECENT: Final = 3_600.0
"""Seconds after which an incident is not recent any more."""
MAX_GATHERED: Final = 100
"""Subjects that a gathered alert can name."""


class AlertState(StrEnum):
    """In which state an alert is."""

    ON = "on"
    """A condition that lasts."""
    ENDED = "ended"
    """A condition whose end was reported."""
    UNSEEN = "unseen"
    """A condition that was not reported again in time: it is over, or what reported it has died."""
    RECENT = "recent"
    """An incident of the last hour."""
    PAST = "past"
    """An earlier incident."""


class AlertReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report that a condition was found, or that an incident has happened.

    Attributes:
        subject: what it is about: a queue, a node, a schedule, a slot; empty where there is no such thing.
        times: how often, since the report before.
        ended: that the condition is over; the texts are not used then.
    """

    kind: str
    subject: str
    node: str
    text: str = ""
    slot: str | None = None
    pid: int | None = None
    data: dict[str, Any] = {}
    times: int = 1
    ended: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Reports of one key from one node are kept as one alert."""
        return self.kind, self.subject


def subjects_of(kind: str, data: Mapping[str, Any], *, node: str = "", slot: str | None = None) -> Sequence[str]:
    """What an alert is about; more than one for nodes that fell silent together.

    >>> subjects_of("backlog", {"queue": "video"}), subjects_of("inactive-nodes", {"nodes": ["b", "c"]})
    (['video'], ['b', 'c'])
    >>> subjects_of("hung", {}, slot="video-1"), subjects_of("reload-abandoned", {})
    (['video-1'], [''])
    >>> subjects_of("recovered", {"condition": "disk-full", "disk": 3})
    ['disk-full 3']
    """
    if kind == AlertKind.RECOVERED and data.get("condition") in OF_STORAGE:
        return [f"{data['condition']} {_disk_of(data)}"]
    subject = SUBJECTS.get(kind, "")
    found = {"node": node, "slot": slot}.get(subject, data.get(subject))
    return [str(one) for one in found] if found and isinstance(found, list) else [str(found or "")]


def reports_of(alert: Alert) -> list[AlertReport]:
    """What an alert reports: of one that was gathered from several, a report of each subject.

    >>> at = datetime(2026, 1, 1)
    >>> gone = Alert(alert="recovered", text="…", node="a", at=at, data={"queue": "video"})
    >>> [(report.kind, report.subject, report.ended) for report in reports_of(gone)]
    [('backlog', 'video', True), ('unserved-queue', 'video', True)]
    """
    found = []
    for text, data, times in _parts_of(alert):
        for subject in subjects_of(alert.alert, data, node=alert.node, slot=alert.slot):
            report = AlertReport(
                kind=alert.alert,
                subject=subject,
                node=alert.node,
                text=text,
                slot=alert.slot,
                pid=alert.pid,
                data=data,
                times=times,
            )
            found += [report] if alert.alert != AlertKind.RECOVERED else _ends(report)
    return found


def state_at(
    moment: datetime, *, last_seen_at: datetime, on_until: datetime | None, ended_at: datetime | None, kind: str
) -> AlertState:
    """The state of an alert at a moment of the database's clock.

    >>> noon = datetime(2026, 1, 1, 12)
    >>> one = {"last_seen_at": noon, "ended_at": None, "kind": "backlog"}
    >>> [state_at(noon + timedelta(hours=hours), on_until=noon + timedelta(hours=1), **one).value for hours in (0, 2)]
    ['on', 'unseen']
    """
    if ended_at is not None:
        return AlertState.ENDED
    if on_until is not None:
        return AlertState.ON if on_until > moment else AlertState.UNSEEN
    if kind in CONDITIONS:
        return AlertState.UNSEEN
    return AlertState.RECENT if moment - last_seen_at < timedelta(seconds=RECENT) else AlertState.PAST


def _parts_of(alert: Alert) -> list[tuple[str, dict[str, Any], int]]:
    """The text, the data and the number of each alert that was gathered into this one, or of this one alone."""
    alike = alert.data.get("alike")
    if not isinstance(alike, list):
        return [(alert.text, alert.data, 1)]
    parts = [part for part in alike if isinstance(part, dict)]
    return [(str(part.get("text")), _dict(part.get("data")), _count(part.get("times"))) for part in parts]


def _ends(recovery: AlertReport) -> list[AlertReport]:
    """The ends that a ``recovered`` reports."""
    condition = recovery.data.get("condition")
    if condition in OF_STORAGE:
        ends = [(AlertKind(str(condition)), _disk_of(recovery.data))]
    elif recovery.subject:
        ends = [(kind, recovery.subject) for kind in ENDED_BY_RECOVERY]
    else:
        ends = [(AlertKind.DATABASE_AWAY, recovery.node)]
    return [AlertReport(kind=kind.value, subject=subject, node=recovery.node, ended=True) for kind, subject in ends]


def _disk_of(data: Mapping[str, Any]) -> str:
    """The disk in the data of an alert, as its subject; empty where it is about none."""
    return str(data.get("disk") or "")


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 1


# ---------------------------------------------------------------- conditions that are examined again and again


class ConditionChanges(msgspec.Struct, frozen=True):
    """What is to be reported.

    Attributes:
        present: conditions that have begun, or that were reported long ago and go on.
        ended: conditions that were reported and are over, with the seconds for which they have lasted.
    """

    present: list[str]
    ended: dict[str, float]


@dataclass(slots=True)
class OngoingConditions:
    """The conditions that hold. Each is reported at its begin, then each ``repeat_every`` seconds, then at its end.

    >>> conditions = OngoingConditions(repeat_every=900.0)
    >>> conditions.update({"video"}, 0.0)
    ConditionChanges(present=['video'], ended={})
    >>> conditions.update({"video"}, 60.0)
    ConditionChanges(present=[], ended={})
    >>> conditions.update(set(), 120.0)
    ConditionChanges(present=[], ended={'video': 120.0})
    """

    repeat_every: float
    _began: dict[str, float] = field(default_factory=dict)
    _reported: dict[str, float] = field(default_factory=dict)

    def resume(self, key: str, began: float, reported: float) -> None:
        """Go on with a condition that another one has reported.

        >>> conditions = OngoingConditions(repeat_every=900.0)
        >>> conditions.resume("video", began=0.0, reported=100.0)
        >>> conditions.update({"video"}, 999.0), conditions.update(set(), 1_100.0).ended
        (ConditionChanges(present=[], ended={}), {'video': 1100.0})
        """
        self._began[key] = began
        self._reported[key] = reported

    def update(self, found: Collection[str], now: float) -> ConditionChanges:
        """Take those that hold now, by a monotonic clock in seconds."""
        ended = {key: now - self._began.pop(key) for key in sorted(self._began.keys() - set(found))}
        for key in ended:
            del self._reported[key]
        present = [
            key for key in sorted(found) if key not in self._reported or now - self._reported[key] >= self.repeat_every
        ]
        for key in present:
            self._began.setdefault(key, now)
            self._reported[key] = now
        return ConditionChanges(present, ended)
