"""Touch: a living process says of each task that it holds that it still does, and hears of those it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.outcome import truncate
from peerd.store.outcomes.recording import ClaimId, WriteResult, by_lease, is_held, still_held
from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import tasks
from peerd.store.tasks.conditions import by_index, is_working
from peerd.store.tasks.rows import batches, lock_available, update_tasks

NOTE_LIMIT: Final = 255
"""Characters."""


class TaskProgress(msgspec.Struct, frozen=True):
    """How far a task is: a fraction from 0 to 1, and words."""

    fraction: float
    note: str | None = None


def touch(connection: Connection, held: set[ClaimId]) -> set[ClaimId]:
    """Renew ``checked_at`` of the tasks that this process holds.

    A row that another session has locked is left out: it must not keep its neighbours from being touched.

    Args:
        connection: in a transaction of its own.
        held: the claims.

    Returns:
        the claims that it holds no more: canceled, moved, rescued or deleted meanwhile.
    """
    lost: set[ClaimId] = set()
    for batch in batches(sorted(held, key=lambda one: one.id)):
        for lease, ids in by_lease(batch).items():
            lost |= _touch(connection, lease, ids).refused
    return lost


def report_progress(connection: Connection, reports: Mapping[ClaimId, TaskProgress]) -> WriteResult:
    """Write progress, and renew ``checked_at`` with it; not of rows that another session has locked.

    Args:
        connection: in a transaction of its own.
        reports: the claims, and how far their tasks are.

    Returns:
        the claims that this process holds no more, and those whose rows are locked.
    """
    refused: set[ClaimId] = set()
    locked: set[ClaimId] = set()
    for batch in batches(sorted(reports, key=lambda one: one.id)):
        for lease, ids in by_lease(batch).items():
            written = _report_progress(
                connection, lease, {task_id: reports[ClaimId(task_id, lease)] for task_id in ids}
            )
            refused |= written.refused
            locked |= written.locked
    return WriteResult(refused, locked)


def claims_of_process(connection: Connection, process_id: int) -> dict[ClaimId, int | None]:
    """All claims that the table says this process has, with their tokens."""
    columns = (tasks.c.id, tasks.c.lease, tasks.c.claim_token)
    statement = sa.select(*columns).where(is_working(), tasks.c.process_id == process_id)
    rows = connection.execute(by_index(statement, "tasks_claim"))
    return {ClaimId(row.id, row.lease): row.claim_token for row in rows}


def _report_progress(connection: Connection, lease: int, reports: Mapping[int, TaskProgress]) -> WriteResult:
    fractions = {task_id: clamp_fraction(progress.fraction) for task_id, progress in reports.items()}
    notes = {task_id: None if one.note is None else truncate(one.note, NOTE_LIMIT) for task_id, one in reports.items()}
    progress = sa.case(fractions, value=tasks.c.id, else_=tasks.c.progress)
    note = sa.case(_typed(notes), value=tasks.c.id, else_=sa.null())
    return _touch(connection, lease, list(reports), progress=progress, progress_note=note)


def _touch(connection: Connection, lease: int, ids: Sequence[int], **values: Any) -> WriteResult:
    free = lock_available(connection, ids, *is_held(lease))
    written = update_tasks(connection, free, *is_held(lease), checked_at=now(), **values)
    if written == len(ids):
        return WriteResult(set(), set())
    not_written = set(ids) - set(free) if written == len(free) else ids
    missing = {ClaimId(task_id, lease) for task_id in not_written}
    still = still_held(connection, missing)
    return WriteResult(missing - still, {held for held in still if held.id not in free})


def _typed(notes: Mapping[int, str | None]) -> dict[int, sa.ColumnElement[Any]]:
    return {task_id: sa.literal(note, sa.Text()) for task_id, note in notes.items()}


def clamp_fraction(fraction: float) -> float:
    """A fraction as a column of all databases can hold it.

    >>> [clamp_fraction(value) for value in (-1.0, 0.5, 7.0, float("nan"))]
    [0.0, 0.5, 1.0, 0.0]
    """
    return min(max(fraction, 0.0), 1.0) if fraction == fraction else 0.0  # noqa: PLR0124 - only NaN is not itself
