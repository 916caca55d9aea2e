"""The state of each queue: its pause, its tasks, since when the oldest one waits, and which wait for too long."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import FINISHED, Status
from peerd.store.queues import has_jobs_of_clients
from peerd.store.schema.tables import queues
from peerd.store.schema.types import now
from peerd.store.statistics.depths import QueueDepth
from peerd.store.tasks import counts


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """A queue.

    Attributes:
        name: its name.
        known: it has been served by a worker process, or paused.
        paused: nothing is claimed from it.
        paused_until: when it opens by itself.
        counts: its tasks of each status; of ended ones, those among the latest 10,000 of all queues.
        at_least: the statuses that may have more tasks than were counted, because counting ends at 10,000.
        reserved: working ones that queue clients hold.
        oldest_pending_at: since when its oldest pending task has been due.
    """

    name: str
    known: bool
    paused: bool
    paused_until: datetime | None
    counts: dict[Status, int]
    at_least: list[Status]
    reserved: int
    oldest_pending_at: datetime | None


def list_queues(connection: Connection, most: int = counts.MOST_COUNTED) -> list[QueueState]:
    """All queues that have unfinished or lately ended tasks, or have been served or paused, by name.

    Its cost depends on the number of queues, and not on the number of tasks: each count ends at ``most``.
    """
    over = sa.and_(queues.c.paused_until.is_not(None), queues.c.paused_until <= now())
    known = sa.select(queues.c.name, queues.c.paused, queues.c.paused_until, over.label("over"))
    rows = {row.name: row for row in connection.execute(known)}
    working = counts.count_working(connection)
    ended = {status: counts.count_ended(connection, status, most) for status in FINISHED}
    names = {
        *rows,
        *working,
        *counts.unfinished_queues(connection),
        *(name for found in ended.values() for name in found),
    }
    full = {status for status, found in ended.items() if sum(found.values()) >= most}
    states = []
    for name in sorted(names):
        row = rows.get(name)
        paused = row is not None and bool(row.paused) and not row.over
        unfinished = counts.count_unfinished(connection, name, most)
        running, reserved = working.get(name, (0, 0))
        by_status = unfinished.counts | ({Status.WORKING: running} if running else {})
        by_status |= {status: found[name] for status, found in ended.items() if name in found}
        reached = {*unfinished.at_least, *full} & by_status.keys()
        states.append(
            QueueState(
                name=name,
                known=row is not None,
                paused=paused,
                paused_until=row.paused_until if row is not None and paused else None,
                counts=by_status,
                at_least=[status for status in Status if status in reached],
                reserved=reserved,
                oldest_pending_at=counts.oldest_pending(connection, name) if by_status.get(Status.PENDING) else None,
            )
        )
    return states


# ---------------------------------------------------------------- late queues


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


def find_late_queues(
    connection: Connection, sample: Iterable[QueueDepth], longer_than: float, unserved_after: float
) -> list[LateQueue]:
    """The queues of a sample whose oldest pending task has been due for ``longer_than`` seconds.

    Those that no process has ever served are found after ``unserved_after`` seconds already, paused ones never.
    """
    found = []
    for depth in sample:
        age = 0.0 if depth.oldest is None or depth.paused else depth.oldest
        if age >= min(longer_than, unserved_after):
            is_served = depth.known or has_jobs_of_clients(connection, depth.queue)
            if age >= (longer_than if is_served else unserved_after):
                found.append(LateQueue(name=depth.queue, age=age, is_served=is_served))
    return found
