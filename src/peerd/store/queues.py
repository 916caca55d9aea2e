"""Queues: which are known or paused, where their pending tasks may run, and how many are due."""

from __future__ import annotations

from datetime import datetime

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.task import NewTask
from peerd.store.schema.tables import queues, tasks
from peerd.store.schema.types import now, seconds_from_now
from peerd.store.statements import insert_if_absent
from peerd.store.take.eligibility import quarantined_lane
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
