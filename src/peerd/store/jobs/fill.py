"""How full a queue is: a count that ends at a limit."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.jobs.statistics import ASIDE_STATUSES, PENDING_KINDS
from peerd.store.schema.tables import CLAIM_ORDER, KEYED_CLAIM_ORDER, tasks
from peerd.store.tasks.conditions import aside_order, by_index, is_aside, is_working


def count_unfinished_up_to(connection: Connection, queue: str, most: int) -> int:
    """The number of tasks of a queue that have not ended; ``most`` if there are so many or more.

    It reads at most ``most`` entries of each of the indexes that have unfinished tasks by their queue, and those of the
    running tasks of all queues, however large the table is. See `peerd.gateway.queue_capacity` for asking often.
    """
    return int(connection.execute(_count_statement(), {"queue": queue, "most": most}).scalar_one())


@lru_cache(maxsize=1)
def _count_statement() -> sa.Select[Any]:
    queue, most = sa.bindparam("queue", type_=sa.Text()), sa.bindparam("most", type_=sa.Integer())
    one: sa.Label[int] = sa.literal_column("1", sa.Integer()).label("one")
    # Ordered as their index, they are read by it: without an order, PostgreSQL may scan the table for the first rows.
    orders = ((tasks.c.lane, *CLAIM_ORDER), KEYED_CLAIM_ORDER)
    found = [
        by_index(sa.select(one).where(kind.of(queue)).order_by(*order), kind.index)
        for kind, order in zip(PENDING_KINDS, orders, strict=True)
    ]
    aside = [sa.select(one).where(is_aside(status, queue)).order_by(*aside_order()) for status in ASIDE_STATUSES]
    found += [by_index(part, "tasks_aside") for part in aside]
    found.append(by_index(sa.select(one).where(is_working(), tasks.c.queue == queue), "tasks_claim"))
    parts = [sa.select(part.limit(most).subquery(f"part_{place}")) for place, part in enumerate(found)]
    return sa.select(sa.func.count()).select_from(sa.union_all(*parts).limit(most).subquery("unfinished"))
