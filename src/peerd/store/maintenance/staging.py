"""What falls due next, and letting it arrive the moment it does."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import Status, TaskEvent, target
from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import nodes, tasks
from peerd.store.tasks.conditions import is_waiting_as, status_is
from peerd.store.tasks.rows import BATCH, status_literal, update_available

WAITING_STATUSES = (Status.FAILURE, Status.SCHEDULED)


class NextDue(msgspec.Struct, frozen=True):
    """The database's clock, when the next task falls due, and the id of the first node that is active."""

    now: datetime
    next_at: datetime | None
    first_node: int | None


class StagedTasks(msgspec.Struct, frozen=True):
    """How many tasks have become pending, and in which queues."""

    count: int
    queues: tuple[str, ...]


def find_next_due(connection: Connection) -> NextDue:
    """Look when the next task falls due: the head of an index for each of the two statuses that wait for their time."""
    row = connection.execute(_next_due_statement()).one()
    due = [moment for moment in row[2:] if moment is not None]
    return NextDue(now=row[0], next_at=min(due, default=None), first_node=row[1])


@lru_cache(maxsize=1)
def _next_due_statement() -> sa.Select[Any]:
    first = sa.select(sa.func.min(nodes.c.id)).where(nodes.c.active).scalar_subquery()
    return sa.select(now(), first, *(_head(status) for status in WAITING_STATUSES))


def _head(status: Status) -> sa.ScalarSelect[datetime]:
    waits = sa.select(tasks.c.due_at).where(is_waiting_as(status))
    return waits.order_by(tasks.c.due_at).limit(1).scalar_subquery()


def stage_all_due(connection: Connection, limit: int = BATCH) -> StagedTasks:
    """Make failures and scheduled tasks pending whose time has come; so many at the most, the longest due first.

    Args:
        connection: in a transaction of its own.
        limit: tasks at the most.
    """
    count, queues = 0, set()
    for status in WAITING_STATUSES:
        due = (status_is(status), tasks.c.due_at <= now())
        found = sa.select(tasks.c.id, tasks.c.queue).where(is_waiting_as(status), tasks.c.due_at <= now())
        rows = connection.execute(found.order_by(tasks.c.due_at).limit(limit - count)).all() if count < limit else []
        count += update_available(
            connection, [row.id for row in rows], *due, status=status_literal(target(TaskEvent.STAGE))
        )
        queues |= {row.queue for row in rows}
    return StagedTasks(count, tuple(sorted(queues)))
