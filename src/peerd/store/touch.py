"""Touch: a living process says of each task that it holds that it still does, and hears of those it does not."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import Event, sources
from peerd.store.clock import now
from peerd.store.finish import Held, by_lease
from peerd.store.rows import batches, select_by_id, status_is, update_tasks
from peerd.store.tables import tasks


class Progress(msgspec.Struct, frozen=True):
    """How far a task is: a fraction from 0 to 1, and words."""

    fraction: float
    note: str | None = None


def touch(connection: Connection, held: set[Held]) -> set[Held]:
    """Renew ``checked_at`` of the tasks that this process holds.

    Returns:
        the claims that it holds no more: canceled, moved, rescued or deleted meanwhile.
    """
    lost: set[Held] = set()
    for batch in batches(sorted(held, key=lambda one: one.id)):
        for lease, ids in by_lease(batch).items():
            guard = (tasks.c.lease == lease, status_is(*sources(Event.COMPLETE)))
            if update_tasks(connection, ids, *guard, checked_at=now()) < len(ids):
                still = select_by_id(sa.select(tasks.c.id).where(tasks.c.id.in_(ids), *guard))
                lost |= {Held(task_id, lease) for task_id in set(ids) - set(connection.execute(still).scalars())}
    return lost


def report_progress(connection: Connection, reports: Mapping[Held, Progress]) -> set[Held]:
    """Write progress, and renew ``checked_at`` with it.

    Returns:
        the claims that this process holds no more.
    """
    lost: set[Held] = set()
    for held, progress in sorted(reports.items(), key=lambda pair: pair[0].id):
        guard = (tasks.c.lease == held.lease, status_is(*sources(Event.COMPLETE)))
        values = {"progress": progress.fraction, "progress_note": progress.note, "checked_at": now()}
        if not update_tasks(connection, [held.id], *guard, **values):
            lost.add(held)
    return lost


def held_by(connection: Connection, process_id: int) -> dict[Held, int | None]:
    """All claims that the table says this process has, with their tokens."""
    statement = sa.select(tasks.c.id, tasks.c.lease, tasks.c.claim_token).where(
        status_is(*sources(Event.COMPLETE)), tasks.c.process_id == process_id
    )
    return {Held(row.id, row.lease): row.claim_token for row in connection.execute(statement)}
