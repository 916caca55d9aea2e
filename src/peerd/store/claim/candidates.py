"""The heads of the lanes: what is claimed next, in the order of the claim's index.

A lane is those of a queue's pending tasks that are for any node, or those for one, or those of either that have crashed
a process. What is eligible in it is said here and nowhere else, for those who read, lock or write it.
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
def select_candidates(serves: tuple[str, ...], lanes: Lanes) -> sa.Select[int]:
    """The ids at the heads of these lanes of these queues, best first, read without locks.

    Its parameters are those of `who`, and ``limit``.
    """
    limit = sa.bindparam("limit", type_=sa.Integer())
    heads = [sa.select(_lane_head(queue, lane, limit).subquery()) for queue in serves for lane in lanes]
    union = sa.union_all(*heads).subquery("heads")
    return sa.select(union.c.id).order_by(*(union.c[column.name] for column in CLAIM_ORDER)).limit(limit)


def select_candidates_for_update(serves: tuple[str, ...], lanes: Lanes) -> sa.Select[int]:
    """As `select_candidates`, for the statement that writes them: a CTE for each lane's head, and the best of their
    union.

    Each head is locked, where the database locks rows: what is chosen is still eligible when it is written.
    """
    limit = sa.bindparam("limit", type_=sa.Integer())
    heads = []
    for number, (queue, lane) in enumerate((queue, lane) for queue in serves for lane in lanes):
        locked = _lane_head(queue, lane, limit).with_for_update(skip_locked=True, of=tasks)
        heads.append(sa.select(locked.cte(f"head_{number}")))
    union = sa.union_all(*heads).subquery("heads")
    return sa.select(union.c.id).order_by(*(union.c[column.name] for column in CLAIM_ORDER)).limit(limit)


def is_startable() -> sa.ColumnElement[bool]:
    """The conditions of eligibility that are about the row's times."""
    return sa.and_(tasks.c.due_at <= now(), sa.or_(tasks.c.finish_at.is_(None), tasks.c.finish_at > now()))


def claiming_allowed(queue: str) -> sa.ColumnElement[bool]:
    """The conditions that are about the queue and the claimer, not about a row; with the parameters of `who`."""
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
    """Whether a queue as a whole is limited: then all of it is claimed by turns."""
    return sa.exists().where(limits.c.queue == queue, limits.c.limit_key == WHOLE_QUEUE)


def _lane_head(queue: str, lane: int, limit: sa.BindParameter[int]) -> sa.Select[Any]:
    """The head of one lane of one queue: an exact range of the claim's index, in its order."""
    may = sa.and_(claiming_allowed(queue), sa.not_(queue_is_limited(queue)))
    head = (
        sa.select(*CLAIM_ORDER)
        .where(
            PENDING_WITHOUT_KEY.of(sa.literal(queue)),
            tasks.c.lane == lane,
            is_startable(),
            may,
        )
        .order_by(*CLAIM_ORDER)
        .limit(_limit_if(may, limit))
    )
    return by_index(head, PENDING_WITHOUT_KEY.index)


def clear_statement_cache() -> None:
    """Make the statements anew, for a test that has changed what they are made of."""
    select_candidates.cache_clear()


class _limit_if(expression.ColumnElement[int]):  # noqa: N801 - it reads as an expression
    """A limit; on SQLite it is 0 unless a condition holds that has nothing to do with the rows.

    The other databases ask such a condition once, before they look at any row. SQLite asks it at each row, if it names
    the time: a paused queue would be walked to its end.
    """

    inherit_cache = True
    type = sa.Integer()

    def __init__(self, condition: sa.ColumnElement[bool], limit: sa.BindParameter[int]) -> None:
        self.condition = condition
        self.limit = limit


@compiles(_limit_if)
def _compile_limit(element: _limit_if, compiler: Any, **options: Any) -> str:
    return str(compiler.process(element.limit, **options))


@compiles(_limit_if, "sqlite")
def _compile_limit_on_sqlite(element: _limit_if, compiler: Any, **options: Any) -> str:
    return str(compiler.process(sa.case((element.condition, element.limit), else_=sa.literal_column("0")), **options))
