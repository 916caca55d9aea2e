"""Alerts: what is reported again is one row, which counts the reports; the conditions that are on; the end of old rows.

The row of a condition that is on has an ``open_key``, which is unique. So nodes that report it at the same moment, and
a node that goes on after another has died, write to the same row.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.alert import ABOUT_QUEUES, CONDITIONS, NOTICED_BY_ANY, AlertKind, AlertReport, AlertState, state_at
from peerd.domain.log_line import bounded_text
from peerd.store.records import add_new, delete_older, to_record
from peerd.store.schema.tables import alerts, nodes
from peerd.store.schema.types import now, seconds_from_now

COALESCE_WITHIN: Final = 600.0
"""Seconds after an incident within which the same one of the same node is counted in its row."""
MAX_NAME: Final = 200
MAX_TEXT_BYTES: Final = 4_000
MAX_DATA_BYTES: Final = 16_000


class ReportAge(msgspec.Struct, frozen=True):
    """How many seconds ago something was reported, at first and lately; it may have waited for the database."""

    first: float = 0.0
    latest: float = 0.0


def record_alert(connection: Connection, report: AlertReport, age: ReportAge) -> None:
    """Count a report in the row of its alert, or write a row."""
    if report.kind in CONDITIONS:
        _record_condition(connection, report, age)
    else:
        _record_incident(connection, report, age)


def end_condition(connection: Connection, kind: str, subject: str, age: float = 0.0) -> None:
    """Write that a condition ended so many seconds ago; without a row, nothing."""
    is_open = alerts.c.open_key == _open_key(kind, subject)
    values = {"ended_at": seconds_from_now(-age), "on_until": None, "open_key": None}
    connection.execute(sa.update(alerts).where(is_open).values(values))


def _record_condition(connection: Connection, report: AlertReport, age: ReportAge) -> None:
    key = _open_key(report.kind, report.subject)
    lasts = CONDITIONS[report.kind]
    is_open = alerts.c.open_key == key
    is_on = alerts.c.on_until > seconds_from_now(-age.first)
    values = {"on_until": seconds_from_now(lasts - age.latest)}
    if _count_report(connection, (is_open, is_on), report, age, values):
        return
    connection.execute(sa.update(alerts).where(is_open, sa.not_(is_on)).values(open_key=None))
    new = _new_row(report, age) | values | {"open_key": key}
    if not add_new(connection, alerts, new):  # another node has written it in this moment
        _count_report(connection, (is_open,), report, age, values)


def _record_incident(connection: Connection, report: AlertReport, age: ReportAge) -> None:
    is_same = (alerts.c.kind == report.kind, alerts.c.subject == _name(report.subject))
    is_young = alerts.c.last_seen_at >= seconds_from_now(-COALESCE_WITHIN - age.first)
    found = sa.select(alerts.c.id).where(*is_same, is_young, alerts.c.node == _name(report.node))
    row = connection.execute(found.order_by(alerts.c.last_seen_at.desc()).limit(1)).scalar()
    if row is None or not _count_report(connection, (alerts.c.id == row,), report, age, {}):
        connection.execute(sa.insert(alerts).values(_new_row(report, age)))


def _count_report(
    connection: Connection,
    conditions: tuple[sa.ColumnElement[bool], ...],
    report: AlertReport,
    age: ReportAge,
    values: dict[str, Any],
) -> bool:
    """Count it in the row of these conditions; return whether there is one."""
    changed = _described(report) | {
        "times": alerts.c.times + report.times,
        "last_seen_at": seconds_from_now(-age.latest),
    }
    return bool(connection.execute(sa.update(alerts).where(*conditions).values(changed | values)).rowcount)


def _new_row(report: AlertReport, age: ReportAge) -> dict[str, Any]:
    return _described(report) | {
        "kind": report.kind,
        "subject": _name(report.subject),
        "times": report.times,
        "raised_at": seconds_from_now(-age.first),
        "last_seen_at": seconds_from_now(-age.latest),
    }


def _described(report: AlertReport) -> dict[str, Any]:
    """What the latest report of an alert says."""
    return {
        "node": _name(report.node),
        "slot": None if report.slot is None else _name(report.slot),
        "pid": report.pid,
        "text": bounded_text(report.text, MAX_TEXT_BYTES),
        "data": _data_text(report.data),
    }


def _open_key(kind: str, subject: str) -> str:
    return f"{kind} {_name(subject)}"


def _name(text: str) -> str:
    return bounded_text(text, MAX_NAME)


def _data_text(data: dict[str, Any]) -> str | None:
    """JSON; data that is too large is left out, and said to be."""
    if not data:
        return None
    text = json.dumps(data, ensure_ascii=False, default=str).encode(errors="replace").decode()
    return text if len(text.encode()) <= MAX_DATA_BYTES else '{"is_cut": true}'


# ---------------------------------------------------------------- reading


class AlertRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An alert.

    Attributes:
        kind: such as ``backlog``.
        subject: what it is about: a queue, a node, a schedule, a slot; empty where there is no such thing.
        state: ``on``, ``ended`` or ``unseen`` for a condition; ``recent`` or ``past`` for an incident.
        text: for people, of the latest report.
        node: where it was reported last.
        slot, pid: of the process that it is about, or that has reported it.
        data: for programs.
        times: how often it was reported or has happened.
        raised_at, last_seen_at: of the first and the latest report.
        ended_at: when the condition ended; None: it has not, or it is an incident.
    """

    id: int
    kind: str
    subject: str
    state: AlertState
    text: str
    node: str
    slot: str | None
    pid: int | None
    data: dict[str, Any]
    times: int
    raised_at: datetime
    last_seen_at: datetime
    ended_at: datetime | None

    @property
    def about_node(self) -> str | None:
        """The node that it is about; None: it is about none, whichever has noticed it."""
        if self.kind == AlertKind.INACTIVE_NODES:
            return self.subject
        if self.kind in NOTICED_BY_ANY:
            node = self.data.get("node")
            return node if isinstance(node, str) else None
        return self.node

    @property
    def queue(self) -> str | None:
        """The queue that it is about, if it is about one."""
        return self.subject if self.kind in ABOUT_QUEUES and self.subject else None


class AlertPage(msgspec.Struct, frozen=True, kw_only=True):
    """Alerts, the newest first; ``next`` is ``after`` of the next page, None on the last one."""

    items: list[AlertRecord]
    next: str | None


class AlertFilter(msgspec.Struct, frozen=True):
    """Which alerts a page has; None does not filter. ``since`` is in seconds before now."""

    on: bool | None = None
    kinds: tuple[str, ...] | None = None
    since: float | None = None
    queues: frozenset[str] | None = None


class OpenCondition(msgspec.Struct, frozen=True):
    """A condition that is on: for how many seconds, and how many seconds ago it was reported last."""

    subject: str
    on_for: float
    reported_ago: float


def list_alerts(connection: Connection, wanted: AlertFilter, *, after: int | None, limit: int) -> AlertPage:
    """A page of alerts.

    Args:
        connection: of a transaction that reads.
        wanted: the filter.
        after: the id of the last alert of the page before.
        limit: alerts at the most.
    """
    conditions = _conditions(wanted)
    if after is not None:
        conditions.append(alerts.c.id < after)
    # Those that are on are few: an order that no index has keeps a database from reading all alerts in their order.
    order = alerts.c.id + 0 if wanted.on else alerts.c.id
    statement = sa.select(alerts, now().label("now")).where(*conditions).order_by(order.desc()).limit(limit + 1)
    found = [_to_record(row) for row in connection.execute(statement).mappings()]
    has_more = len(found) > limit
    return AlertPage(items=found[:limit], next=str(found[limit - 1].id) if has_more else None)


def open_conditions(connection: Connection, kinds: Collection[str], limit: int) -> list[OpenCondition]:
    """The conditions of some kinds that are on, at most ``limit``."""
    columns = (alerts.c.subject, alerts.c.raised_at, alerts.c.last_seen_at, now().label("now"))
    is_on = (alerts.c.on_until > now(), alerts.c.kind.in_(sorted(kinds)))
    rows = connection.execute(sa.select(*columns).where(*is_on).order_by(alerts.c.on_until).limit(limit))
    return [
        OpenCondition(
            row.subject, (row.now - row.raised_at).total_seconds(), (row.now - row.last_seen_at).total_seconds()
        )
        for row in rows
    ]


def _conditions(wanted: AlertFilter) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = []
    if wanted.on is True:
        conditions.append(alerts.c.on_until > now())
    if wanted.on is False:
        conditions.append(sa.or_(alerts.c.on_until.is_(None), alerts.c.on_until <= now()))
    if wanted.kinds is not None:
        conditions.append(alerts.c.kind.in_(wanted.kinds))
    if wanted.since is not None:
        conditions.append(alerts.c.last_seen_at >= seconds_from_now(-wanted.since))
    if wanted.queues is not None:
        conditions += [alerts.c.kind.in_(ABOUT_QUEUES), alerts.c.subject.in_(sorted(wanted.queues))]
    return conditions


def _to_record(row: sa.RowMapping) -> AlertRecord:
    times = {name: row[name] for name in ("last_seen_at", "on_until", "ended_at", "kind")}
    return to_record(AlertRecord, row, data=_data(row["data"]), state=state_at(row["now"], **times))


def _data(text: str | None) -> dict[str, Any]:
    """The data of an alert; of a row that was written by hand, any text."""
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = text
    return found if isinstance(found, dict) else {"value": found}


# ---------------------------------------------------------------- upkeep


def purge_alerts(connection: Connection, keep: int, age: float, limit: int) -> int:
    """Delete alerts that were last seen more than ``age`` seconds ago, and all but the newest ``keep``."""
    deleted = delete_older(connection, alerts, alerts.c.last_seen_at, age, limit)
    last = sa.select(alerts.c.id).order_by(alerts.c.id.desc()).offset(keep).limit(1)
    newest_surplus = connection.execute(last).scalar()
    if newest_surplus is None or deleted >= limit:
        return deleted
    surplus = sa.select(alerts.c.id).where(alerts.c.id <= newest_surplus).order_by(alerts.c.id).limit(limit - deleted)
    ids = connection.execute(surplus.with_for_update(skip_locked=True)).scalars().all()
    return deleted + connection.execute(sa.delete(alerts).where(alerts.c.id.in_(ids))).rowcount


def follow_silent_nodes(connection: Connection, limit: int) -> int:
    """End the alerts of nodes that are not silent any more, and keep those on whose nodes are; return how many ended.

    Nothing reports again that a node is silent, nor that it is not: its row in `nodes` tells.
    """
    kind, lasts = AlertKind.INACTIVE_NODES.value, CONDITIONS[AlertKind.INACTIVE_NODES]
    is_silent = sa.and_(nodes.c.id.is_not(None), sa.not_(nodes.c.active), nodes.c.incarnation.is_not(None))
    is_old = alerts.c.on_until < seconds_from_now(lasts / 2)
    columns = (alerts.c.id, alerts.c.subject, is_silent.label("is_silent"), is_old.label("is_old"))
    joined = alerts.outerjoin(nodes, nodes.c.name == alerts.c.subject)
    found = sa.select(*columns).select_from(joined).where(alerts.c.on_until > now(), alerts.c.kind == kind)
    rows = connection.execute(found.order_by(alerts.c.on_until).limit(limit)).all()
    over = [row.subject for row in rows if not row.is_silent]
    for subject in over:
        end_condition(connection, kind, subject)
    if lasting := [row.id for row in rows if row.is_silent and row.is_old]:
        values = {"on_until": seconds_from_now(lasts), "last_seen_at": now()}
        connection.execute(sa.update(alerts).where(alerts.c.id.in_(lasting)).values(values))
    return len(over)
