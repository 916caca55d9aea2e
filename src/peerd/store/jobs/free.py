"""What any queue client may do: kick and delete jobs that no client holds, and pause a tube."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import Status, TaskEvent, sources
from peerd.domain.task import delay_until_start
from peerd.store.jobs.statistics import whole_seconds_left
from peerd.store.queues import pause, resume
from peerd.store.schema.tables import queues, tasks
from peerd.store.schema.types import now
from peerd.store.tasks.actions import delete_rows
from peerd.store.tasks.conditions import ASIDE_KINDS, status_is
from peerd.store.tasks.rows import (
    BATCH,
    batches,
    canceled_values,
    kicked_values,
    lock_tasks,
    update_available,
    update_tasks,
)

DELAYED: Final = (Status.SCHEDULED, Status.FAILURE)
"""Delayed jobs that can be kicked; one that waits for other tasks cannot."""
FREE: Final = (Status.PENDING, Status.SCHEDULED, Status.FAILURE, Status.WAITING, Status.BURIED)
"""Jobs that no client holds."""
DELETED_BY_CLIENT: Final = "deleted by a queue client"


class KickedPart(NamedTuple):
    """How many jobs were kicked, and in which statuses they were."""

    kicked: int
    statuses: tuple[Status, ...]


def kick(connection: Connection, queue: str, bound: int) -> int:
    """Make buried jobs ready, the longest buried first; if there are none, delayed ones, the soonest first.

    Args:
        connection: in a transaction.
        queue: the tube.
        bound: jobs at the most.

    Returns:
        how many. Jobs whose rows another session has locked are left out.
    """
    return kick_part(connection, queue, bound).kicked


def kick_part(connection: Connection, queue: str, bound: int, statuses: tuple[Status, ...] | None = None) -> KickedPart:
    """Do a part of a `kick`; a further part has the statuses of the part before it."""
    if statuses is None:
        statuses = (Status.BURIED,) if _first_ids(connection, queue, (Status.BURIED,), 1) else DELAYED
    kicked = 0
    while kicked < bound:
        ids = _first_ids(connection, queue, statuses, min(bound - kicked, BATCH))
        count = update_available(connection, ids, status_is(*statuses), **kicked_values())
        if not count:
            break
        kicked += count
    return KickedPart(kicked, statuses)


def kick_job(connection: Connection, job_id: int) -> str | None:
    """Make a buried or delayed job ready; its queue, or None if there is no such job."""
    can_be_kicked = status_is(*sources(TaskEvent.KICK))
    locked = lock_tasks(connection, [job_id], can_be_kicked, skip_locked=True) if 0 < job_id < 2**63 else []
    update_tasks(connection, [task.id for task in locked], can_be_kicked, **kicked_values())
    return locked[0].queue if locked else None


def delete_free(connection: Connection, ids: Iterable[int], *, keep: Collection[str] = frozenset()) -> dict[int, str]:
    """Delete jobs that are ready, delayed or buried, with their attempts and the keys that end with them.

    Args:
        connection: in a transaction.
        ids: any numbers.
        keep: queues that keep history: their jobs become canceled.

    Returns:
        the ids of those that were there, with their queues. Jobs whose rows another session has locked are left out.
    """
    deleted: dict[int, str] = {}
    for batch in batches(sorted({job_id for job_id in ids if 0 < job_id < 2**63})):
        locked = lock_tasks(connection, batch, status_is(*FREE), skip_locked=True)
        gone = [task for task in locked if task.queue not in keep]
        if gone:
            delete_rows(connection, gone)
        kept = [task.id for task in locked if task.queue in keep]
        update_tasks(connection, kept, **canceled_values(DELETED_BY_CLIENT))
        deleted |= {task.id: task.queue for task in locked}
    return deleted


def _first_ids(connection: Connection, queue: str, statuses: tuple[Status, ...], limit: int) -> list[int]:
    """The first jobs to be kicked; two statuses are merged by due time."""
    first = [
        row
        for status in statuses
        for row in connection.execute(ASIDE_KINDS[status].first(queue, tasks.c.due_at, tasks.c.id, limit=limit)).all()
    ]
    if len(statuses) > 1:
        first.sort(key=lambda row: (row.due_at, row.id))
    return [row.id for row in first[:limit]]


# ---------------------------------------------------------------- pauses of tubes


class TubePause(msgspec.Struct, frozen=True):
    """The pause of a tube: the seconds that were last given, and the seconds that are left; 0 where there is none."""

    seconds: int
    left: int


def pause_tube(connection: Connection, queue: str, seconds: int) -> None:
    """Let no client reserve from a tube, and no worker claim from it, for some seconds; 0 ends a pause.

    Raises:
        InvalidTask: the name is not valid for a queue.
    """
    pause(connection, queue, delay_until_start(seconds))
    if not seconds:
        resume(connection, queue)
    connection.execute(sa.update(queues).where(queues.c.name == queue).values(pause=seconds, updated_at=now()))


def pause_state(connection: Connection, queue: str) -> TubePause:
    """The pause of a tube, zeros once it has ended; one without an end, which a user has given, has a second left."""
    columns = (queues.c.pause, queues.c.paused, queues.c.paused_until, now().label("now"))
    row = connection.execute(sa.select(*columns).where(queues.c.name == queue)).first()
    if row is None or not row.paused or (row.paused_until is not None and row.paused_until <= row.now):
        return TubePause(0, 0)
    left = 1 if row.paused_until is None else whole_seconds_left(row.now, row.paused_until)
    return TubePause(int(row.pause or 0), left)
