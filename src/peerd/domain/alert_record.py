"""Alerts as they are kept: which are about a condition that lasts, what each is about, and in which state it is.

A condition, such as a backlog, is on until it has ended. What reports it repeats the report while it lasts; a condition
whose report is not repeated in time counts as unseen, since what would report its end may have died. An incident, such
as a crash, has no end: it is recent for an hour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec

from peerd.domain.alert import Alert, AlertKind

CONDITIONS: Final[Mapping[str, float]] = {
    AlertKind.BACKLOG: 4_500.0,
    AlertKind.UNSERVED_QUEUE: 4_500.0,
    AlertKind.DATABASE_AWAY: 300.0,
    AlertKind.INACTIVE_NODES: 1_800.0,
    AlertKind.PINNED_TASKS: 300.0,
    AlertKind.LONG_READ_VIEW: 300.0,
    AlertKind.COPIES_AT_RISK: 4_500.0,
    AlertKind.FILES_UNREADABLE: 4_500.0,
    AlertKind.FILES_LOST: 4_500.0,
    AlertKind.DISK_FULL: 4_500.0,
    AlertKind.DISK_UNUSABLE: 4_500.0,
    AlertKind.REPAIR_BRAKE: 4_500.0,
}
"""The kinds that last, and the seconds for which one counts as on after its latest report."""
ENDED_BY_RECOVERY: Final = (AlertKind.BACKLOG, AlertKind.UNSERVED_QUEUE)
"""Kinds about a queue that ``recovered`` with the queue ends; without a queue it ends the outage of its node."""
OF_STORAGE: Final = (
    AlertKind.COPIES_AT_RISK,
    AlertKind.FILES_UNREADABLE,
    AlertKind.FILES_LOST,
    AlertKind.DISK_FULL,
    AlertKind.DISK_UNUSABLE,
    AlertKind.REPAIR_BRAKE,
)
"""Conditions of storage; a ``recovered`` that names one in ``condition`` ends it."""
NOTICED_BY_ANY: Final = frozenset({*ENDED_BY_RECOVERY, *OF_STORAGE, AlertKind.PINNED_TASKS, AlertKind.LONG_READ_VIEW})
"""Kinds of the whole cluster, which any node may notice; the data of those about a disk name its node."""
ABOUT_DISKS: Final = (AlertKind.DISK_FULL, AlertKind.DISK_UNUSABLE, AlertKind.BAD_COPIES)
"""Kinds whose subject is the number of a disk."""
ABOUT_QUEUES: Final = (*ENDED_BY_RECOVERY, AlertKind.DEAD_TASKS)
"""Kinds whose subject is a queue, or empty: all that an actor sees that is restricted to some queues."""
RECENT: Final = 3_600.0
"""Seconds after which an incident is not recent any more."""
MAX_GATHERED: Final = 100
"""Subjects of which a gathered alert tells."""
_FIELD_OF_SUBJECT: Final[Mapping[str, str]] = {
    AlertKind.BACKLOG: "queue",
    AlertKind.UNSERVED_QUEUE: "queue",
    AlertKind.DEAD_TASKS: "queue",
    AlertKind.FAILED_RUNS: "schedule",
    AlertKind.EXCEPTION: "component",
    AlertKind.LONG_READ_VIEW: "subject",
    AlertKind.RECOVERED: "queue",
    AlertKind.DISK_FULL: "disk",
    AlertKind.DISK_UNUSABLE: "disk",
    AlertKind.BAD_COPIES: "disk",
}
_OF_NODES: Final = frozenset({AlertKind.DATABASE_AWAY, AlertKind.MASTER_DIED})
_OF_SLOTS: Final = frozenset({AlertKind.CRASH_LOOP, AlertKind.TAINTED, AlertKind.HUNG, AlertKind.SILENT})


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
    """That a condition was found on, or an incident has happened.

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
    if kind == AlertKind.INACTIVE_NODES and isinstance(data.get("nodes"), list) and data["nodes"]:
        return [str(name) for name in data["nodes"]]
    if kind in _OF_NODES:
        return [node]
    if kind in _OF_SLOTS:
        return [slot or ""]
    field = _FIELD_OF_SUBJECT.get(kind)
    return [str(data.get(field) or "") if field else ""]


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
