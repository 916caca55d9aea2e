"""Taking on PostgreSQL: one statement reads the first tasks of each lane, locks the best that are free, writes them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import sqlalchemy as sa

from peerd.store.schema.tables import CLAIM_ORDER, tasks
from peerd.store.schema.types import now
from peerd.store.statements import CompiledStatement, DriverConnection, queue_in_list
from peerd.store.take.claimer import Claimer
from peerd.store.take.eligibility import (
    LIMIT_PARAMETER,
    Lanes,
    Terms,
    head_of_lane,
    is_takeable,
    lane_table,
    open_queues,
)

SEEN_BEYOND_LIMIT: Final = 16
"""Candidates that are read beyond the number wanted: other processes may have locked the first ones."""
SEEN_AMONG_COMPETITORS: Final = 128
"""Candidates that are read beyond the number wanted after other processes had locked some."""


def take(
    connection: DriverConnection,
    claimer: Claimer,
    terms: Terms,
    lanes: Lanes,
    limit: int,
    *,
    beside_limits: bool,
    **values: Any,
) -> tuple[list[Sequence[Any]], bool]:
    """Take the first tasks that count for no limit; if others have locked some of them, more are read.

    Returns:
        rows of the terms' columns, in no order, and whether another process holds the mutex named by the value
        ``mutex``.
    """
    statement = _take(terms, lanes, beside_limits=beside_limits, with_mutex="mutex" in values)
    values |= {**claimer.parameters(), "queues": list(claimer.queues)}
    rows: list[Sequence[Any]] = []
    is_alone = True
    for beyond in (SEEN_BEYOND_LIMIT, SEEN_AMONG_COMPETITORS):
        missing = limit - len(rows)
        found = statement.run(connection, **values, limit=missing, seen=missing + beyond).all()
        written = [row[:-2] for row in found if row[0] is not None]
        rows += written
        is_alone = is_alone and found[0][-1]
        if len(rows) == limit or found[0][-2] == len(written):
            break
    return rows, is_alone


@lru_cache(maxsize=64)
def _take(terms: Terms, lanes: Lanes, *, beside_limits: bool, with_mutex: bool) -> CompiledStatement:
    """A statement that returns the taken rows as it has written them.

    Each has the number of candidates, and whether no other process claims; if nothing was written, one row has these
    two. Candidates are read without locks: a lock on the first tasks of each lane would keep other processes from tasks
    that are not taken.
    """
    seen = sa.bindparam("seen", type_=sa.Integer())
    queue, lane = open_queues("postgresql", lanes, beside_limits=beside_limits), lane_table(lanes)
    head = head_of_lane(queue.c.queue, lane.c.lane, *CLAIM_ORDER, limit=seen).correlate(queue, lane).lateral("head")
    order = [head.c[column.name] for column in CLAIM_ORDER]
    joined = queue.join(lane, sa.true()).join(head, sa.true())
    candidates = sa.select(head.c.id).select_from(joined).order_by(*order).limit(seen).cte("candidates")
    chosen = (
        sa.select(tasks.c.id)
        .where(tasks.c.id.in_(sa.select(candidates.c.id)), is_takeable(lanes, queue_in_list(tasks.c.queue)))
        .order_by(*CLAIM_ORDER)
        .limit(LIMIT_PARAMETER)
        .with_for_update(skip_locked=True, of=tasks)
        .cte("chosen")
    )
    at = sa.select(now().label("at")).cte("moment").c.at  # PostgreSQL reads its clock wherever it is named
    update = sa.update(tasks).where(tasks.c.id == chosen.c.id).values(terms.values(sa.select(at).scalar_subquery()))
    written = update.returning(*(tasks.c[name] for name in terms.columns)).cte("written")
    number = sa.select(sa.func.count().label("number")).select_from(candidates).subquery("counted")
    mutex = sa.bindparam("mutex", type_=sa.BigInteger())
    is_alone: sa.ScalarSelect[Any] = sa.select(sa.func.pg_try_advisory_xact_lock(mutex)).scalar_subquery()
    columns = (*written.c, number.c.number, is_alone if with_mutex else sa.true())
    return CompiledStatement(sa.select(*columns).select_from(number.outerjoin(written, sa.true())))
