"""Looking at jobs without reserving them. All of it only reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import FINISHED, Status
from peerd.store.claim.candidates import is_startable
from peerd.store.jobs.kicking import select_aside
from peerd.store.jobs.reserved_rows import to_bytes
from peerd.store.jobs.types import FoundJob
from peerd.store.schema.tables import CLAIM_ORDER, KEYED_CLAIM_ORDER, nodes, tasks
from peerd.store.tasks.conditions import PENDING_WITH_KEY, PENDING_WITHOUT_KEY, by_index

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
    node_ids = connection.execute(sa.select(nodes.c.id)).scalars().all()
    heads = []
    for lane in (0, -1, *node_ids, *(-1 - node_id for node_id in node_ids)):
        for kind, order in ((PENDING_WITHOUT_KEY, CLAIM_ORDER), (PENDING_WITH_KEY, KEYED_CLAIM_ORDER[1:])):
            in_lane = (kind.of(sa.literal(queue)), tasks.c.lane == lane, is_startable())
            head = by_index(sa.select(*CLAIM_ORDER).where(*in_lane), kind.index).order_by(*order).limit(1)
            heads.append(sa.select(head.subquery()))
    first = min((tuple(row) for row in connection.execute(sa.union_all(*heads))), default=None)
    return None if first is None else peek(connection, int(first[-1]))


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
