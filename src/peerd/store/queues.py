"""Queues: which are known or paused, their tasks, since when the oldest one waits, and which queues are late."""

from __future__ import annotations

from datetime import datetime

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import FINISHED, Status
from peerd.domain.task import NewTask
from peerd.store.schema.tables import queues, tasks
from peerd.store.schema.types import now, seconds_from_now
from peerd.store.statements import insert_if_absent
from peerd.store.take.eligibility import quarantined_lane
from peerd.store.tasks import counts
from peerd.store.tasks.conditions import PENDING_KINDS
from peerd.store.tasks.pages import Values, entries_behind, section_of


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


def pending_nodes(connection: Connection, name: str, most: int) -> list[int]:
    """The ids of the nodes to which pending tasks of a queue are pinned, and 0 if any node may take some.

    Each lane of the queue takes one step in an index, however many tasks it has.
    """
    lanes: set[int] = set()
    for kind in PENDING_KINDS:
        place: Values = ()
        for _ in range(2 * most):
            found = entries_behind(connection, section_of(kind, name), place, 1, tasks.c.lane)
            if not found:
                break
            place = found[0]
            lanes.add(place[0])
    return sorted({lane if lane >= 0 else quarantined_lane(lane) for lane in lanes})[:most]


class QueueBacklog(msgspec.Struct, frozen=True):
    """How many of a queue's first pending tasks are due, and since when."""

    count: int
    since: datetime | None


def measure_backlog(connection: Connection, name: str, most: int, node_id: int = 0) -> QueueBacklog:
    """The tasks of a queue that are due, and that one node may take, or any: of the first ``most`` of each lane."""
    count, oldest = 0, []
    for kind in PENDING_KINDS:
        for lane in (node_id, quarantined_lane(node_id)):  # the second has those that run alone, after a crash
            head = kind.first(name, tasks.c.due_at, limit=most).where(tasks.c.lane == lane).subquery()
            due = sa.select(sa.func.count(), sa.func.min(head.c.due_at)).where(head.c.due_at <= now())
            number, since = connection.execute(due).one()
            count += number
            oldest += [since] if number else []
    return QueueBacklog(min(count, most), min(oldest, default=None))


def has_jobs_of_clients(connection: Connection, name: str) -> bool:
    """Whether a queue client has put one of the pending tasks of a queue: the first ones are looked at."""
    first = (connection.execute(kind.first(name, tasks.c.ttr)).scalar() for kind in PENDING_KINDS)
    return any(ttr is not None for ttr in first)


# ---------------------------------------------------------------- states of queues


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """A queue.

    Attributes:
        name: its name.
        known: it has been served by a worker process, or paused.
        paused: nothing is claimed from it.
        paused_until: when it opens by itself.
        counts: its tasks of each status; of ended ones, those among the latest 10,000 of all queues.
        at_least: the statuses of which it has so many or more, because counting ends at 10,000.
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


def list_queues(
    connection: Connection, most: int = counts.MOST_COUNTED, *, ended: bool = True, limit: int | None = None
) -> list[QueueState]:
    """All queues that have unfinished or lately ended tasks, or have been served or paused, by name.

    Its cost depends on the number of queues, and not on the number of tasks: it takes some steps in an index for each
    queue, and reads ``most`` entries at the most for each status of it.

    Args:
        connection: of a read.
        most: each count ends there.
        ended: whether ended tasks are counted, too.
        limit: queues at the most, the first by name; None: all.
    """
    over = sa.and_(queues.c.paused_until.is_not(None), queues.c.paused_until <= now())
    known = sa.select(queues.c.name, queues.c.paused, queues.c.paused_until, over.label("over"))
    rows = {row.name: row for row in connection.execute(known)}
    working = counts.count_working(connection)
    ends = {status: counts.count_ended(connection, status, most) for status in (FINISHED if ended else ())}
    names = {
        *rows,
        *working,
        *counts.unfinished_queues(connection),
        *(name for found in ends.values() for name in found),
    }
    full = {status for status, found in ends.items() if sum(found.values()) >= most}
    states = []
    for name in sorted(names)[:limit]:
        row = rows.get(name)
        paused = row is not None and bool(row.paused) and not row.over
        unfinished = counts.count_unfinished(connection, name, most)
        running, reserved = working.get(name, (0, 0))
        by_status = unfinished.counts | ({Status.WORKING: running} if running else {})
        by_status |= {status: found[name] for status, found in ends.items() if name in found}
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
