"""Reading alerts: a page of them, and the conditions that are on."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.alert import ABOUT_QUEUES, NOTICED_BY_ANY, AlertKind, AlertState, state_at
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import alerts


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
    values = {name: row[name] for name in AlertRecord.__struct_fields__ if name in row}
    return AlertRecord(**values | {"data": _data(row["data"]), "state": state_at(row["now"], **times)})


def _data(text: str | None) -> dict[str, Any]:
    """The data of an alert; of a row that was written by hand, whatever its text is."""
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = text
    return found if isinstance(found, dict) else {"value": found}
