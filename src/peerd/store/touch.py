"""Touch: a living process says of each task that it holds that it still does, and hears of those it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import Event, sources
from peerd.domain.outcome import cut
from peerd.store.clock import now
from peerd.store.finish import Held, by_lease
from peerd.store.rows import batches, by_id_alone, update_tasks
from peerd.store.search import by_index, is_working, select_by_id, status_is
from peerd.store.tables import tasks

NOTE_LIMIT: Final = 255
"""Characters."""


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
            lost |= _touch(connection, lease, ids)
    return lost


def report_progress(connection: Connection, reports: Mapping[Held, Progress]) -> set[Held]:
    """Write progress, and renew ``checked_at`` with it.

    Returns:
        the claims that this process holds no more.
    """
    lost: set[Held] = set()
    for batch in batches(sorted(reports, key=lambda one: one.id)):
        for lease, ids in by_lease(batch).items():
            lost |= _report(connection, lease, {task_id: reports[Held(task_id, lease)] for task_id in ids})
    return lost


def held_by(connection: Connection, process_id: int) -> dict[Held, int | None]:
    """All claims that the table says this process has, with their tokens."""
    columns = (tasks.c.id, tasks.c.lease, tasks.c.claim_token)
    statement = sa.select(*columns).where(is_working(), tasks.c.process_id == process_id)
    rows = connection.execute(by_index(statement, "tasks_claim"))
    return {Held(row.id, row.lease): row.claim_token for row in rows}


def _report(connection: Connection, lease: int, reports: Mapping[int, Progress]) -> set[Held]:
    fractions = {task_id: within(progress.fraction) for task_id, progress in reports.items()}
    notes = {task_id: None if one.note is None else cut(one.note, NOTE_LIMIT) for task_id, one in reports.items()}
    progress = sa.case(fractions, value=tasks.c.id, else_=tasks.c.progress)
    note = sa.case(_typed(notes), value=tasks.c.id, else_=sa.null())
    return _touch(connection, lease, list(reports), progress=progress, progress_note=note)


def _touch(connection: Connection, lease: int, ids: Sequence[int], **values: Any) -> set[Held]:
    guard = (tasks.c.lease == lease, status_is(*sources(Event.COMPLETE)))
    if update_tasks(connection, ids, *guard, checked_at=now(), **values) == len(ids):
        return set()
    still = select_by_id(sa.select(tasks.c.id).where(*by_id_alone(connection, ids, guard)))
    return {Held(task_id, lease) for task_id in set(ids) - set(connection.execute(still).scalars())}


def _typed(notes: Mapping[int, str | None]) -> dict[int, sa.ColumnElement[Any]]:
    return {task_id: sa.literal(note, sa.Text()) for task_id, note in notes.items()}


def within(fraction: float) -> float:
    """A fraction as a column of all databases can hold it.

    >>> [within(value) for value in (-1.0, 0.5, 7.0, float("nan"))]
    [0.0, 0.5, 1.0, 0.0]
    """
    return min(max(fraction, 0.0), 1.0) if fraction == fraction else 0.0  # noqa: PLR0124 - only NaN is not itself
