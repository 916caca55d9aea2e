"""Queues: which are known, which are paused and until when, and how many tasks are pending in each."""

from __future__ import annotations

from datetime import datetime

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.task import NewTask
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import CLAIM_ORDER, KEYED_CLAIM_ORDER, queues, tasks
from peerd.store.tasks.conditions import PENDING_WITH_KEY, PENDING_WITHOUT_KEY, by_index, is_working
from peerd.store.tasks.rows import insert_if_absent


def pause(connection: Connection, name: str, duration: float | None = None) -> None:
    """Stop claims from a queue, for ``duration`` seconds or until `resume`. Running tasks continue.

    Raises:
        InvalidTask: the name is not valid for a queue.
    """
    NewTask(queue=name)  # validates the name
    until = None if duration is None else seconds_from_now(duration)
    insert_if_absent(connection, queues, [{"name": name}], key=("name",))
    statement = sa.update(queues).where(queues.c.name == name)
    connection.execute(statement.values(paused=True, paused_until=until, updated_at=now()))


def resume(connection: Connection, name: str) -> None:
    """Allow claims from a queue again."""
    statement = sa.update(queues).where(queues.c.name == name)
    connection.execute(statement.values(paused=False, paused_until=None, updated_at=now()))


def is_known(connection: Connection, name: str) -> bool:
    """Whether a queue has ever been served or paused."""
    return connection.execute(sa.select(queues.c.name).where(queues.c.name == name)).first() is not None


def known_queues(connection: Connection) -> list[str]:
    """The names of all queues that have ever been served or paused."""
    return list(connection.execute(sa.select(queues.c.name).order_by(queues.c.name)).scalars())


def pending_queues(connection: Connection, most: int) -> list[str]:
    """The first queues with pending tasks, by name; each takes one step in an index, however many tasks it has."""
    found: set[str] = set()
    for kind in (PENDING_WITHOUT_KEY, PENDING_WITH_KEY):
        name = sa.literal("")
        for _ in range(most):
            after = kind.where(lambda column, name=name: column > name)  # type: ignore[misc]
            statement = by_index(sa.select(tasks.c.queue).where(after), kind.index).order_by(kind.queue).limit(1)
            row = connection.execute(statement).first()
            if row is None:
                break
            found.add(row.queue)
            name = sa.literal(row.queue)
    return sorted(found)[:most]


class QueueBacklog(msgspec.Struct, frozen=True):
    """How many of a queue's first pending tasks are waiting for any node, and since when."""

    count: int
    since: datetime | None


def measure_backlog(connection: Connection, name: str, most: int, longer_than: float = 0.0) -> QueueBacklog:
    """The tasks of a queue that have waited for longer than some seconds, among the first ``most`` of each kind."""
    count, oldest = 0, []
    for kind, order in ((PENDING_WITHOUT_KEY, CLAIM_ORDER), (PENDING_WITH_KEY, KEYED_CLAIM_ORDER[1:])):
        first = sa.select(tasks.c.due_at).where(kind.of(sa.literal(name)), tasks.c.lane == 0).order_by(*order)
        head = by_index(first, kind.index).limit(most).subquery()
        long = sa.select(sa.func.count(), sa.func.min(head.c.due_at)).where(
            head.c.due_at <= seconds_from_now(-longer_than)
        )
        number, since = connection.execute(long).one()
        count += number
        oldest += [since] if number else []
    return QueueBacklog(count, min(oldest, default=None))


def has_jobs_of_clients(connection: Connection, name: str) -> bool:
    """Whether a queue client has put one of the pending tasks of a queue: the first ones are looked at."""
    for kind in (PENDING_WITHOUT_KEY, PENDING_WITH_KEY):
        first = by_index(sa.select(tasks.c.ttr).where(kind.of(sa.literal(name))), kind.index).limit(1)
        row = connection.execute(first).first()
        if row is not None and row.ttr is not None:
            return True
    return False


def has_working_task(connection: Connection, name: str) -> bool:
    """Whether a task of a queue is working."""
    working = by_index(sa.select(tasks.c.id).where(is_working(), tasks.c.queue == name), PENDING_WITHOUT_KEY.index)
    return connection.execute(working.limit(1)).first() is not None
