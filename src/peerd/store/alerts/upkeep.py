"""What the managers do with the table of alerts: they delete old ones, and follow the nodes that fell silent."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.alert import CONDITIONS, AlertKind
from peerd.store.access.sessions import purge_older
from peerd.store.alerts.recording import end_condition
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import alerts, nodes


def purge_alerts(connection: Connection, keep: int, age: float, limit: int) -> int:
    """Delete alerts that were last seen more than ``age`` seconds ago, and all but the newest ``keep``."""
    deleted = purge_older(connection, alerts, alerts.c.last_seen_at, age, limit)
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
