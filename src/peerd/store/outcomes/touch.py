"""Touch: a process renews ``checked_at`` of the tasks that it holds, and learns which of them it holds no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
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
    """The progress of a task: a fraction from 0 to 1, and a note."""

    fraction: float
    note: str | None = None


def touch(connection: Connection, held: set[ClaimId]) -> set[ClaimId]:
    """Renew ``checked_at`` of the tasks that this process holds.

    In a transaction of its own. A row that another session has locked is left out: it would delay the others.

    Returns:
        the claims that it holds no more: canceled, moved, rescued or deleted meanwhile.
    """
    return _touch_batches(connection, held, lambda *_: {}).refused


def report_progress(connection: Connection, reports: Mapping[ClaimId, TaskProgress]) -> WriteResult:
    """Write progress and renew ``checked_at``; rows that another session has locked are left out.

    Returns:
        the claims that this process holds no more, and those whose rows are locked.
    """

    def values(lease: int, ids: Sequence[int]) -> dict[str, Any]:
        own = {task_id: reports[ClaimId(task_id, lease)] for task_id in ids}
        fractions = {task_id: clamp_fraction(progress.fraction) for task_id, progress in own.items()}
        notes: dict[int, sa.ColumnElement[Any]] = {
            task_id: sa.literal(None if progress.note is None else truncate(progress.note, NOTE_LIMIT), sa.Text())
            for task_id, progress in own.items()
        }
        return {
            "progress": sa.case(fractions, value=tasks.c.id, else_=tasks.c.progress),
            "progress_note": sa.case(notes, value=tasks.c.id, else_=sa.null()),
        }

    return _touch_batches(connection, reports, values)


def claims_of_process(connection: Connection, process_id: int) -> dict[ClaimId, int | None]:
    """All claims that this process has in the table, with their tokens."""
    columns = (tasks.c.id, tasks.c.lease, tasks.c.claim_token)
    statement = sa.select(*columns).where(is_working(), tasks.c.process_id == process_id)
    rows = connection.execute(by_index(statement, "tasks_claim"))
    return {ClaimId(row.id, row.lease): row.claim_token for row in rows}


def _touch_batches(
    connection: Connection, claims: Iterable[ClaimId], values: Callable[[int, Sequence[int]], dict[str, Any]]
) -> WriteResult:
    result = WriteResult(set(), set())
    for batch in batches(sorted(claims, key=attrgetter("id"))):
        for lease, ids in by_lease(batch).items():
            written = _touch(connection, lease, ids, **values(lease, ids))
            result.refused.update(written.refused)
            result.locked.update(written.locked)
    return result


def _touch(connection: Connection, lease: int, ids: Sequence[int], **values: Any) -> WriteResult:
    available = lock_available(connection, ids, *is_held(lease))
    written = update_tasks(connection, available, *is_held(lease), checked_at=now(), **values)
    if written == len(ids):
        return WriteResult(set(), set())
    not_written = set(ids) - set(available) if written == len(available) else ids
    missing = {ClaimId(task_id, lease) for task_id in not_written}
    still = still_held(connection, missing)
    return WriteResult(missing - still, {held for held in still if held.id not in available})


def clamp_fraction(fraction: float) -> float:
    """A fraction as a column of all databases can hold it.

    >>> [clamp_fraction(value) for value in (-1.0, 0.5, 7.0, float("nan"))]
    [0.0, 0.5, 1.0, 0.0]
    """
    return min(max(fraction, 0.0), 1.0) if fraction == fraction else 0.0  # noqa: PLR0124 - only NaN is not itself
