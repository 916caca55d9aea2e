"""Which tasks are still to be done."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import FINISHED
from peerd.store.schema.tables import tasks
from peerd.store.tasks.rows import BATCH


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
