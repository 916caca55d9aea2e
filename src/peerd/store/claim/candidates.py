"""The candidates of a claim: the first tasks of each lane, in the order of the claim's index.

A lane is one part of a queue's pending tasks: those for any node, those pinned to one node, or those of either that are
quarantined because they have crashed a process. The conditions of eligibility stand here only; every statement that
reads, locks or writes candidates uses them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import expression

from peerd.domain.limit import WHOLE_QUEUE
from peerd.store.claim.claimer import NODE_PARAMETER, Lanes
from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import CLAIM_ORDER, limits, nodes, queues, tasks
from peerd.store.tasks.conditions import PENDING_WITHOUT_KEY, by_index


@lru_cache(maxsize=256)
def select_candidates(serves: tuple[str, ...], lanes: Lanes, *, for_update: bool = False) -> sa.Select[int]:
    """The ids of the first tasks of these lanes of these queues, best first.

    Its parameters are `claimer_parameters` and ``limit``. They are read without locks; with ``for_update``, each lane's
    first tasks are locked in a CTE of their own, so that they are still eligible when the same statement writes them.
    """
    limit = sa.bindparam("limit", type_=sa.Integer())
    heads = []
    for number, (queue, lane) in enumerate((queue, lane) for queue in serves for lane in lanes):
        head = _lane_head(queue, lane, limit)
        locked = head.with_for_update(skip_locked=True, of=tasks)
        heads.append(sa.select(locked.cte(f"head_{number}") if for_update else head.subquery()))
    union = sa.union_all(*heads).subquery("heads")
    return sa.select(union.c.id).order_by(*(union.c[column.name] for column in CLAIM_ORDER)).limit(limit)


def is_startable() -> sa.ColumnElement[bool]:
    """The conditions of eligibility that concern the row's times."""
    return sa.and_(tasks.c.due_at <= now(), sa.or_(tasks.c.finish_at.is_(None), tasks.c.finish_at > now()))


def claiming_allowed(queue: str) -> sa.ColumnElement[bool]:
    """The conditions that concern the queue and the claimer, not a row; with `claimer_parameters`."""
    paused = sa.exists().where(
        queues.c.name == queue,
        queues.c.paused,
        sa.or_(queues.c.paused_until.is_(None), queues.c.paused_until > now()),
    )
    on_duty = sa.exists().where(
        nodes.c.id == NODE_PARAMETER,
        nodes.c.incarnation == sa.bindparam("incarnation", type_=sa.String()),
        sa.not_(nodes.c.draining),
    )
    return sa.and_(sa.not_(paused), on_duty)


def queue_is_limited(queue: str) -> sa.ColumnElement[bool]:
    """Whether a queue as a whole is limited: then all of it is claimed by `peerd.store.limits.limited_claim`."""
    return sa.exists().where(limits.c.queue == queue, limits.c.limit_key == WHOLE_QUEUE)


def _lane_head(queue: str, lane: int, limit: sa.BindParameter[int]) -> sa.Select[Any]:
    """The first tasks of one lane of one queue: an exact range of the claim's index, in its order."""
    may = sa.and_(claiming_allowed(queue), sa.not_(queue_is_limited(queue)))
    conditions = (PENDING_WITHOUT_KEY.of(sa.literal(queue)), tasks.c.lane == lane, is_startable(), may)
    head = sa.select(*CLAIM_ORDER).where(*conditions).order_by(*CLAIM_ORDER).limit(_limit_if(may, limit))
    return by_index(head, PENDING_WITHOUT_KEY.index)


class _limit_if(expression.ColumnElement[int]):  # noqa: N801 - it reads as an expression
    """A limit; on SQLite it is 0 unless a condition holds that does not depend on the rows.

    The other databases evaluate such a condition once, before they read any row. SQLite evaluates it at each row if it
    contains the time, and would walk through all tasks of a paused queue.
    """

    inherit_cache = True
    type = sa.Integer()

    def __init__(self, condition: sa.ColumnElement[bool], limit: sa.BindParameter[int]) -> None:
        self.condition = condition
        self.limit = limit


@compiles(_limit_if)
def _compile_limit(element: _limit_if, compiler: Any, **options: Any) -> str:
    limit: sa.ColumnElement[int] = element.limit
    if compiler.dialect.name == "sqlite":
        limit = sa.case((element.condition, limit), else_=sa.literal_column("0"))
    return str(compiler.process(limit, **options))
