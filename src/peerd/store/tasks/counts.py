"""Counts of tasks that cost the same in a table of any size: each one ends at a limit, and says so.

Unfinished tasks of a queue are counted in the indexes that have them by their queue. Ended ones are in an index by the
time of their end only, so the latest of each status are read, and divided among their queues.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import TaskNotRunning
from peerd.domain.lifecycle import FINISHED, Status
from peerd.store.schema.tables import nodes, processes, tasks
from peerd.store.schema.types import now
from peerd.store.tasks.conditions import (
    PENDING_WITH_KEY,
    PENDING_WITHOUT_KEY,
    aside_order,
    by_index,
    is_aside,
    is_closing_as,
    is_working,
)
from peerd.store.tasks.pages import Values, entries_behind, get_task, pending_section
from peerd.store.tasks.rows import BATCH

MOST_COUNTED: Final = 10_000
"""Tasks of one queue and status that are counted; and ended tasks of one status, in all queues."""
MOST_JUMPS: Final = 50
"""Combinations of priority, failures, node and limit key among which the oldest pending task is searched for."""
KINDS: Final = (PENDING_WITHOUT_KEY, PENDING_WITH_KEY)
ASIDE: Final = (Status.SCHEDULED, Status.FAILURE, Status.WAITING, Status.BURIED)


class TaskCounts(msgspec.Struct, frozen=True):
    """Tasks of one queue, or of all.

    Attributes:
        counts: of each status that occurs.
        at_least: the statuses that have these tasks or more, because counting has ended at its limit.
    """

    counts: dict[Status, int]
    at_least: frozenset[Status]


def count_unfinished(connection: Connection, queue: str, most: int = MOST_COUNTED) -> TaskCounts:
    """The tasks of a queue that have not ended, without those that are working."""
    row = connection.execute(_unfinished_statement(), {"queue": queue, "most": most}).one()
    with_key, without_key, *aside = map(int, row)
    counts = dict(zip((Status.PENDING, *ASIDE), (with_key + without_key, *aside), strict=True))
    reached = {status for status, count in zip(ASIDE, aside, strict=True) if count >= most}
    if max(with_key, without_key) >= most:
        reached.add(Status.PENDING)
    return TaskCounts({status: count for status, count in counts.items() if count}, frozenset(reached))


def count_working(connection: Connection) -> dict[str, tuple[int, int]]:
    """The working tasks of each queue, as many as there are slots at the most; and those that queue clients hold."""
    held = sa.func.count(tasks.c.deadline_at)
    grouped = sa.select(tasks.c.queue, sa.func.count(), held).where(is_working()).group_by(tasks.c.queue)
    rows = connection.execute(by_index(grouped, PENDING_WITHOUT_KEY.index))
    return {queue: (int(count), int(reserved)) for queue, count, reserved in rows}


def count_ended(connection: Connection, status: Status, most: int = MOST_COUNTED) -> dict[str, int]:
    """The latest tasks that ended with a status, by their queue."""
    assert status in FINISHED
    order = (tasks.c.closing_at.desc(), tasks.c.id.desc())
    latest = sa.select(tasks.c.queue).where(is_closing_as(status)).order_by(*order).limit(most)
    ended = by_index(latest, "tasks_closing").subquery()
    grouped = sa.select(ended.c.queue, sa.func.count()).group_by(ended.c.queue)
    return {queue: int(count) for queue, count in connection.execute(grouped)}


def oldest_pending(connection: Connection, queue: str) -> datetime | None:
    """Since when the oldest pending task of a queue has been due; None if none is.

    Claims go by priority and failures, then by age: the oldest task is at the head of one of these combinations, and
    the search jumps from one to the next.
    """
    heads: list[datetime] = []
    moment = connection.execute(sa.select(now())).scalar_one()
    for kind in KINDS:
        section = pending_section(kind, queue)
        prefix: Values = ()
        for _ in range(MOST_JUMPS):
            found = entries_behind(connection, section, prefix, 1)
            if not found:
                break
            *head, due_at, _ = found[0]
            prefix = tuple(head)
            heads += [due_at] if due_at <= moment else []
    return min(heads, default=None)


@lru_cache(maxsize=1)
def _unfinished_statement() -> sa.Select[Any]:
    queue, most = sa.bindparam("queue", type_=sa.Text()), sa.bindparam("most", type_=sa.Integer())
    one: sa.Label[int] = sa.literal_column("1", sa.Integer()).label("one")
    # Ordered as their index, they are read by it: without an order, PostgreSQL may scan the table for the first rows.
    parts = [
        by_index(sa.select(one).where(kind.of(queue)).order_by(*pending_section(kind, "").order), kind.index)
        for kind in KINDS
    ]
    aside = [sa.select(one).where(is_aside(status, queue)).order_by(*aside_order()) for status in ASIDE]
    parts += [by_index(part, "tasks_aside") for part in aside]
    counts = [sa.select(sa.func.count()).select_from(part.limit(most).subquery()).scalar_subquery() for part in parts]
    return sa.select(*(count.label(f"count_{place}") for place, count in enumerate(counts)))


# ---------------------------------------------------------------- unfinished


def unfinished_among(connection: Connection, task_ids: Collection[int]) -> set[int]:
    """Those of the tasks that have not ended; one whose row was purged has."""
    found: set[int] = set()
    ids = sorted(task_ids)
    for first in range(0, len(ids), BATCH):
        statement = sa.select(tasks.c.id).where(
            tasks.c.id.in_(ids[first : first + BATCH]), tasks.c.status.not_in([str(status) for status in FINISHED])
        )
        found |= set(connection.execute(statement).scalars())
    return found


# ---------------------------------------------------------------- processes


def find_task_process(connection: Connection, task_id: int) -> tuple[str, int]:
    """The name of the node that runs a task, and the process id of the worker process.

    Raises:
        TaskNotFound: there is no such task.
        TaskNotRunning: it does not run, or a queue client holds it.
    """
    task = get_task(connection, task_id)
    if task.status is not Status.WORKING:
        raise TaskNotRunning(task_id, f"it is {task.status}, not working")
    if task.deadline_at is not None:
        raise TaskNotRunning(task_id, "a queue client holds it, whose code runs elsewhere")
    columns = nodes.c.name, processes.c.pid
    joined = sa.select(*columns).join(processes, processes.c.node_id == nodes.c.id)
    row = connection.execute(joined.where(processes.c.id == task.process_id)).first()
    if row is None:
        raise TaskNotRunning(task_id, "the process that has claimed it is not on record")
    return row.name, row.pid
