"""Queues: which are paused, and until when."""

from __future__ import annotations

from datetime import datetime

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import Status
from peerd.domain.task import NewTask
from peerd.store.clock import now, seconds_from_now
from peerd.store.rows import insert_if_absent
from peerd.store.tables import queues, tasks


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """A queue: whether it is paused, and how many tasks of each status it has."""

    name: str
    paused: bool
    paused_until: datetime | None
    counts: dict[Status, int]


def pause(connection: Connection, name: str, duration: float | None = None) -> None:
    """Let nobody claim from a queue, for ``duration`` seconds or until `resume`. Running tasks go on.

    Raises:
        InvalidTask: no queue can have this name.
    """
    NewTask(queue=name)
    until = None if duration is None else seconds_from_now(duration)
    insert_if_absent(connection, queues, [{"name": name}], key=("name",))
    statement = sa.update(queues).where(queues.c.name == name)
    connection.execute(statement.values(paused=True, paused_until=until, updated_at=now()))


def resume(connection: Connection, name: str) -> None:
    """Let a queue be claimed from again."""
    statement = sa.update(queues).where(queues.c.name == name)
    connection.execute(statement.values(paused=False, paused_until=None, updated_at=now()))


def list_queues(connection: Connection) -> list[QueueState]:
    """All queues that have tasks or were ever paused, by name."""
    counts: dict[str, dict[Status, int]] = {}
    grouped = sa.select(tasks.c.queue, tasks.c.status, sa.func.count()).group_by(tasks.c.queue, tasks.c.status)
    for queue, status, count in connection.execute(grouped):
        counts.setdefault(queue, {})[Status(status)] = count
    over = sa.and_(queues.c.paused_until.is_not(None), queues.c.paused_until <= now())
    held = sa.select(queues.c.name, queues.c.paused, queues.c.paused_until, over.label("over"))
    rows = {row.name: row for row in connection.execute(held)}
    states = []
    for name in sorted(set(counts) | set(rows)):
        row = rows.get(name)
        paused = row is not None and bool(row.paused) and not row.over
        until = row.paused_until if row is not None and paused else None
        states.append(QueueState(name=name, paused=paused, paused_until=until, counts=counts.get(name, {})))
    return states
