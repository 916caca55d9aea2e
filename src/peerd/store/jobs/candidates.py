"""The jobs that a queue client may reserve next: the first ones of each lane of each tube, in the claim's order.

They are read without locks, and never while one of the tubes has work for a limited claim: `limited_tubes` finds that,
and `peerd.store.jobs.reserving` compares priorities then.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import sqlalchemy as sa

from peerd.domain.limit import WHOLE_QUEUE
from peerd.store.claim.candidates import is_startable
from peerd.store.claim.claimer import NODE_PARAMETER, Claimer
from peerd.store.jobs.tube_list import MAX_TUBES, TubeList, lanes_of_node, tube_table
from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import CLAIM_ORDER, limits, nodes, queues, tasks
from peerd.store.statements.compiled import CompiledStatement
from peerd.store.statements.driver_connection import DriverConnection
from peerd.store.tasks.conditions import PENDING_WITH_KEY, PENDING_WITHOUT_KEY, PendingKind, by_index
from peerd.store.tasks.rows import batches

LIMIT_PARAMETER: Final = sa.bindparam("limit", type_=sa.Integer())


def open_tubes(kind: str, places: int, *, beside_limits: bool) -> sa.Subquery:
    """The tubes from which jobs may be reserved, those without a limit of their own.

    Without ``beside_limits`` there are none while any of them has work for a limited claim.
    """
    listed = tube_table(kind, places).subquery("tube_names")
    conditions = [is_on_duty(), is_open(listed.c.queue), sa.not_(is_limited(listed.c.queue))]
    if not beside_limits:
        conditions.append(sa.not_(sa.exists(_limited_tubes(kind, places))))
    return sa.select(listed.c.queue).where(*conditions).subquery("tube")


def is_on_duty() -> sa.ColumnElement[bool]:
    """The claimer's node is the one that its process belongs to, and is not draining."""
    return sa.exists().where(
        nodes.c.id == NODE_PARAMETER,
        nodes.c.incarnation == sa.bindparam("incarnation", type_=sa.String()),
        sa.not_(nodes.c.draining),
    )


def is_open(queue: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """A queue is not paused."""
    ends_later = sa.or_(queues.c.paused_until.is_(None), queues.c.paused_until > now())
    return sa.not_(sa.exists().where(queues.c.name == queue, queues.c.paused, ends_later))


def head_of_lane(queue: Any, lane: Any, *columns: Any, limit: Any = LIMIT_PARAMETER) -> sa.Select[Any]:
    """The first tasks of a lane of a queue that have no limit key: an exact range of the claim's index."""
    conditions = (PENDING_WITHOUT_KEY.of(queue), tasks.c.lane == lane, is_startable())
    head = sa.select(*columns).where(*conditions).order_by(*CLAIM_ORDER).limit(limit)
    return by_index(head, PENDING_WITHOUT_KEY.index)


# ---------------------------------------------------------------- limits


def limited_tubes(connection: DriverConnection, claimer: Claimer) -> list[str]:
    """Those of the claimer's queues that have tasks with limit keys, or tasks and a limit of their own."""
    found: list[str] = []
    for tubes in batches(claimer.queues, rows=MAX_TUBES):
        listed = TubeList(connection.dialect, tubes)
        statement = _limited_tubes_statement(listed.kind, listed.places)
        found += [row[0] for row in statement.run(connection, node=claimer.node_id, **listed.parameters()).all()]
    return list(dict.fromkeys(found))


def limited_rank(connection: DriverConnection, claimer: Claimer, queue: str) -> int | None:
    """The rank of the first task of a queue for a limited claim."""
    ranks = _limited_rank().run(connection, node=claimer.node_id, queue=queue).all()
    return min((int(row[0]) for row in ranks if row[0] is not None), default=None)


@lru_cache(maxsize=16)
def _limited_tubes_statement(kind: str, places: int) -> CompiledStatement:
    return CompiledStatement(_limited_tubes(kind, places))


def _limited_tubes(kind: str, places: int) -> sa.Select[Any]:
    tube = tube_table(kind, places, "limited_tube").subquery("limited_tube")
    keyed = sa.exists(_pending(PENDING_WITH_KEY, tube.c.queue))
    unkeyed = sa.exists(_pending(PENDING_WITHOUT_KEY, tube.c.queue))
    return sa.select(tube.c.queue).where(sa.or_(keyed, sa.and_(is_limited(tube.c.queue), unkeyed)))


def _pending(pending: PendingKind, queue: sa.ColumnElement[str]) -> sa.Select[Any]:
    mine = sa.or_(*(tasks.c.lane == lane for lane in lanes_of_node(NODE_PARAMETER)))
    return by_index(sa.select(tasks.c.id).where(pending.of(queue), mine), pending.index)


def is_limited(queue: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """A queue as a whole has a limit."""
    return sa.exists().where(limits.c.queue == queue, limits.c.limit_key == WHOLE_QUEUE)


@lru_cache(maxsize=1)
def _limited_rank() -> CompiledStatement:
    queue = sa.bindparam("queue", type_=sa.String())
    firsts = []
    for lane in lanes_of_node(NODE_PARAMETER):
        for pending in (PENDING_WITH_KEY, PENDING_WITHOUT_KEY):
            conditions = [pending.of(queue), tasks.c.lane == lane]
            if pending is PENDING_WITHOUT_KEY:
                conditions.append(is_limited(queue))
            first = sa.select(tasks.c.claim_rank).where(*conditions).order_by(tasks.c.claim_rank).limit(1)
            firsts.append(sa.select(by_index(first, pending.index).subquery()))
    return CompiledStatement(sa.union_all(*firsts))
