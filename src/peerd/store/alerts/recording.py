"""Writing alerts: what is reported again is one row, which counts the reports.

The row of a condition that is on has an ``open_key``, which is unique. So nodes that report it at the same moment, and
a node that goes on after another has died, write to the same row.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.alert import CONDITIONS, AlertReport
from peerd.domain.log_line import bounded_text
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import alerts
from peerd.store.upserts import insert_new

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
    statement = insert_new(alerts, connection.dialect.name).values(new)
    if not connection.execute(statement).rowcount:  # another node has written it in this moment
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
