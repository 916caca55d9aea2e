"""Queues whose pending tasks wait for too long, and those of them that no process serves."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.queues import has_jobs_of_clients, pending_queues
from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import queues
from peerd.store.tasks.counts import oldest_pending

MOST_QUEUES = 1_000


class LateQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that is open and whose oldest pending task has been due for a while.

    Attributes:
        name: its name.
        age: seconds for which the task has been due.
        is_served: a worker process has ever served it, or queue clients use it.
    """

    name: str
    age: float
    is_served: bool


def find_late_queues(connection: Connection, longer_than: float, unserved_after: float) -> list[LateQueue]:
    """The queues whose oldest pending task has been due for ``longer_than`` seconds.

    Those that no process has ever served are found after ``unserved_after`` seconds already, paused ones never. It
    takes a few steps in an index for each queue.
    """
    moment = connection.execute(sa.select(now())).scalar_one()
    open_again = sa.and_(queues.c.paused_until.is_not(None), queues.c.paused_until <= now())
    is_paused = sa.and_(queues.c.paused, sa.not_(open_again))
    rows = connection.execute(sa.select(queues.c.name, is_paused.label("paused")))
    known = {row.name: bool(row.paused) for row in rows}
    found = []
    for name in pending_queues(connection, MOST_QUEUES):
        since = None if known.get(name) else oldest_pending(connection, name)
        age = 0.0 if since is None else (moment - since).total_seconds()
        if age >= min(longer_than, unserved_after):
            is_served = name in known or has_jobs_of_clients(connection, name)
            if age >= (longer_than if is_served else unserved_after):
                found.append(LateQueue(name=name, age=age, is_served=is_served))
    return found
