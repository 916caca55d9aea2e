"""The lines that attempts have logged: written in batches beside the outcomes, read page by page, deleted in batches.

A write does not name the lease that is held now. What an attempt logged is true although its claim was lost meanwhile,
and a task that was deleted in that time leaves lines without a task, which end by their age.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import FINISHED, Status
from peerd.domain.log_line import LogCursor, TaskLogLine
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import task_logs, tasks
from peerd.store.tasks.line_insert import LoggedLine, insert_lines
from peerd.store.tasks.rows import BATCH

MAX_DELETED_WITH_TASKS: Final = 5_000
"""Lines that a batch of a chore deletes with their tasks."""
LATE_LINES: Final = 3.0
"""Seconds after the end of a task for which lines of it may still come."""


class LineRange(msgspec.Struct, frozen=True):
    """Lines of one claim, from a first to a last number."""

    task_id: int
    lease: int
    first: int
    last: int


class LogPage(msgspec.Struct, frozen=True):
    """Lines of a task.

    Attributes:
        items: the lines, by claim and number.
        next: the cursor of the last line, for the lines after it; without a line, the cursor that was given.
        has_more: whether there are further lines now.
        ended: whether the task has ended, and so long ago that no further line is awaited.
    """

    items: list[TaskLogLine]
    next: str | None
    has_more: bool
    ended: bool


class LastLines(msgspec.Struct, frozen=True):
    """The last lines of a task, all of one claim, and how many lines it has."""

    items: list[TaskLogLine]
    count: int


def write_lines(connection: Connection, lines: Sequence[LoggedLine], superseded: Iterable[LineRange] = ()) -> None:
    """Write lines, and delete those that later ones supersede. Lines that are there already stay, so it may repeat."""
    if lines:
        insert_lines(connection, lines)
    for one in superseded:
        within = task_logs.c.sequence.between(one.first, one.last)
        is_claim = (task_logs.c.task_id == one.task_id, task_logs.c.lease == one.lease)
        connection.execute(sa.delete(task_logs).where(*is_claim, within))


def read_lines(
    connection: Connection,
    task_id: int,
    *,
    after: LogCursor | None,
    limit: int,
    levels: Collection[str] | None = None,
    attempt: int | None = None,
) -> tuple[list[TaskLogLine], bool]:
    """The next lines of a task, at most ``limit``, and whether there are more."""
    conditions: list[sa.ColumnElement[bool]] = [task_logs.c.task_id == task_id]
    if after is not None:
        is_before = sa.and_(task_logs.c.lease == after.lease, task_logs.c.sequence <= after.sequence)
        conditions += [task_logs.c.lease >= after.lease, sa.not_(is_before)]
    if levels is not None:
        conditions.append(task_logs.c.level.in_(sorted(levels)))
    if attempt is not None:
        conditions.append(task_logs.c.attempt == attempt)
    order = (task_logs.c.task_id, task_logs.c.lease, task_logs.c.sequence)
    found = sa.select(*LINE_COLUMNS).where(*conditions).order_by(*order).limit(limit + 1)
    rows = connection.execute(found).mappings().all()
    return [to_line(row) for row in rows[:limit]], len(rows) > limit


def read_last_lines(connection: Connection, task_id: int, limit: int) -> LastLines:
    """The last lines of the latest claim that has logged any, in their order, and how many lines the task has."""
    if not 0 < task_id < 2**63:
        return LastLines([], 0)
    is_task = task_logs.c.task_id == task_id
    count = connection.execute(sa.select(sa.func.count()).where(is_task)).scalar_one()
    if not count:
        return LastLines([], 0)
    order = (task_logs.c.task_id.desc(), task_logs.c.lease.desc(), task_logs.c.sequence.desc())
    rows = connection.execute(sa.select(*LINE_COLUMNS).where(is_task).order_by(*order).limit(limit)).mappings().all()
    return LastLines([to_line(row) for row in reversed(rows) if row["lease"] == rows[0]["lease"]], count)


def has_ended_long_ago(connection: Connection, task_id: int) -> bool | None:
    """Whether a task has ended, and no line of it is awaited any more; None: there is no such task."""
    if not 0 < task_id < 2**63:
        return None
    ended_at = sa.func.coalesce(tasks.c.finished_at, tasks.c.updated_at, type_=tasks.c.updated_at.type)
    columns = (tasks.c.status, ended_at.label("ended_at"), now().label("now"))
    row = connection.execute(sa.select(*columns).where(tasks.c.id == task_id)).first()
    if row is None:
        return None
    return Status(row.status) in FINISHED and (row.now - row.ended_at).total_seconds() > LATE_LINES


def delete_lines(connection: Connection, task_ids: Collection[int]) -> int:
    """Delete all lines of tasks. Tasks without lines cost a search in the index and no write."""
    is_task = task_logs.c.task_id.in_(sorted(task_ids))
    found = connection.execute(sa.select(task_logs.c.task_id).where(is_task).distinct()).scalars().all()
    return connection.execute(sa.delete(task_logs).where(task_logs.c.task_id.in_(found))).rowcount if found else 0


def deletable_with_lines(
    connection: Connection, task_ids: Sequence[int], most: int = MAX_DELETED_WITH_TASKS
) -> tuple[list[int], int]:
    """Those of some tasks that have at most ``most`` lines together, so that a batch of a chore stays small.

    Where a single task has more, the first ``most`` of its lines are deleted, and it is left for later batches.

    Returns:
        the ids, and how many lines were deleted.
    """
    is_task = task_logs.c.task_id.in_(sorted(task_ids))
    key = (task_logs.c.task_id, task_logs.c.lease, task_logs.c.sequence)
    found = connection.execute(sa.select(task_logs.c.task_id).where(is_task).order_by(*key).limit(most + 1)).scalars()
    owners = found.all()
    if len(owners) <= most:
        return list(task_ids), 0
    complete = [task_id for task_id in task_ids if task_id < owners[-1]]
    return complete, 0 if complete else _delete_first_lines(connection, owners[-1], most)


def _delete_first_lines(connection: Connection, task_id: int, number: int) -> int:
    is_task = task_logs.c.task_id == task_id
    order = (task_logs.c.task_id, task_logs.c.lease, task_logs.c.sequence)
    place = sa.select(task_logs.c.lease, task_logs.c.sequence).where(is_task).order_by(*order).offset(number).limit(1)
    end = connection.execute(place).one()
    is_before = sa.or_(
        task_logs.c.lease < end.lease, sa.and_(task_logs.c.lease == end.lease, task_logs.c.sequence < end.sequence)
    )
    return connection.execute(sa.delete(task_logs).where(is_task, is_before)).rowcount


def purge_lines(connection: Connection, age: float, limit: int = BATCH) -> int:
    """Delete lines that were logged more than ``age`` seconds ago, the oldest first."""
    old = task_logs.c.at <= seconds_from_now(-age)
    key = (task_logs.c.task_id, task_logs.c.lease, task_logs.c.sequence)
    oldest = connection.execute(sa.select(*key).where(old).order_by(task_logs.c.at).limit(limit)).all()
    deleted = 0
    for task_id, lease in sorted({(row.task_id, row.lease) for row in oldest}):
        numbers = [row.sequence for row in oldest if (row.task_id, row.lease) == (task_id, lease)]
        is_claim = (task_logs.c.task_id == task_id, task_logs.c.lease == lease)
        deleted += connection.execute(
            sa.delete(task_logs).where(*is_claim, task_logs.c.sequence.in_(numbers), old)
        ).rowcount
    return deleted


LINE_COLUMNS: Final = tuple(task_logs.c[name] for name in TaskLogLine.__struct_fields__)


def to_line(row: Mapping[Any, Any]) -> TaskLogLine:
    """The line of a row that has `LINE_COLUMNS`."""
    return TaskLogLine(**(dict(row) | {"fields": _parse_fields(row["fields"])}))


def _parse_fields(text: str | None) -> dict[str, Any] | None:
    """The fields of a line; of a row that was written by hand, whatever its text is."""
    if text is None:
        return None
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        found = text
    return found if isinstance(found, dict) else {"value": found}
