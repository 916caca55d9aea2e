"""Looking at jobs without reserving them. All of it only reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import FINISHED, Status
from peerd.store.jobs.kicking import select_aside
from peerd.store.jobs.reserving import to_bytes
from peerd.store.jobs.types import FoundJob
from peerd.store.schema.tables import CLAIM_ORDER, tasks
from peerd.store.take.eligibility import is_startable
from peerd.store.tasks.conditions import PENDING_WITH_KEY, PENDING_WITHOUT_KEY
from peerd.store.tasks.index_walk import entries_behind, pending_section

BODIES: Final = (tasks.c.id, tasks.c.body, tasks.c.body_bytes)
DELAYED: Final = (Status.SCHEDULED, Status.FAILURE, Status.WAITING)


def peek(connection: Connection, job_id: int) -> FoundJob | None:
    """The job of this id, in whatever state; None if there is none, or if it has ended."""
    if not 0 < job_id < 2**63:
        return None
    ended = [str(status) for status in FINISHED]
    return _found(connection, sa.select(*BODIES).where(tasks.c.id == job_id, tasks.c.status.not_in(ended)))


def peek_ready(connection: Connection, queue: str) -> FoundJob | None:
    """The next job of a tube, paused or not, and on whichever node it may be reserved.

    Among jobs of the same priority, those with limit keys are in the order of their keys.
    """
    heads: list[tuple[Any, ...]] = []
    for kind in (PENDING_WITHOUT_KEY, PENDING_WITH_KEY):
        section = pending_section(kind, queue)
        section = msgspec.structs.replace(section, condition=sa.and_(kind.of(queue), is_startable()))
        lane: tuple[Any, ...] = ()
        while head := entries_behind(connection, section, lane, 1, tasks.c.lane, *CLAIM_ORDER):
            lane = head[0][:1]
            heads.append(head[0][1:])
    return peek(connection, int(min(heads)[-1])) if heads else None


def peek_delayed(connection: Connection, queue: str) -> FoundJob | None:
    """The delayed job of a tube that is ready soonest."""
    heads = [select_aside(status, queue, tasks.c.due_at, *BODIES, limit=1) for status in DELAYED]
    rows = [row for head in heads for row in connection.execute(head).all()]
    first = min(rows, key=lambda row: (row.due_at, row.id), default=None)
    return None if first is None else _to_found(first[1:])


def peek_buried(connection: Connection, queue: str) -> FoundJob | None:
    """The job of a tube that was buried first."""
    return _found(connection, select_aside(Status.BURIED, queue, *BODIES, limit=1))


def _found(connection: Connection, statement: sa.Select[Any]) -> FoundJob | None:
    row = connection.execute(statement).first()
    return None if row is None else _to_found(row)


def _to_found(row: Sequence[Any]) -> FoundJob:
    task_id, body, body_bytes = row
    return FoundJob(task_id, to_bytes(body, body_bytes))
