"""The lines that attempts have logged: written in batches beside the outcomes, read page by page, deleted in batches.

A write does not name the lease that is held now. What an attempt logged is true although its claim was lost meanwhile,
and a task that was deleted in that time leaves lines without a task, which end by their age.

Lines are inserted by one statement. It runs beside the outcomes, in a thread of the worker process, whose processor
time it takes. SQLAlchemy would process each value of each line, PyMySQL's `executemany` would search the statement for
its values; so the text is made once.

- PostgreSQL: one JSON text with all lines, as psycopg makes an array in Python.
- SQLite: the same statement again for each line; nothing is sent anywhere between them.
- MariaDB and MySQL: one INSERT of many rows, the text of one row repeated.

A search of the lines of all tasks reads the newest first, in parts of the index of their times, for a bounded time.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import chain, takewhile
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import FINISHED, Status
from peerd.domain.log_line import LogCursor, TaskLogLine
from peerd.store.schema.tables import task_logs, tasks
from peerd.store.schema.types import MYSQL, now, seconds_from_now
from peerd.store.statements import CompiledStatement, delete_oldest, insert_new
from peerd.store.tasks.conditions import by_index
from peerd.store.tasks.rows import BATCH

MAX_DELETED_WITH_TASKS: Final = 5_000
"""Lines that a batch of a chore deletes with their tasks."""
LATE_LINES: Final = 3.0
"""Seconds after the end of a task for which lines of it may still come."""
LINE_COLUMNS: Final = tuple(task_logs.c[name] for name in TaskLogLine.__struct_fields__)
KEY: Final = tuple(task_logs.primary_key)
PART: Final = 2_000
"""Lines that one statement examines."""
SEARCH_TIME: Final = 0.1
"""Seconds after which no further part is examined."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


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
    found = sa.select(*LINE_COLUMNS).where(*conditions).order_by(*KEY).limit(limit + 1)
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
    last = sa.select(*LINE_COLUMNS).where(is_task).order_by(*(column.desc() for column in KEY)).limit(limit)
    rows = connection.execute(last).mappings().all()
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
    """Some of the tasks, with at most ``most`` lines together, so that a batch of a chore stays small.

    Where a single task has more, the first ``most`` of its lines are deleted, and it is left for later batches.

    Returns:
        the ids, and how many lines were deleted.
    """
    is_task = task_logs.c.task_id.in_(sorted(task_ids))
    found = connection.execute(sa.select(task_logs.c.task_id).where(is_task).order_by(*KEY).limit(most + 1)).scalars()
    owners = found.all()
    if len(owners) <= most:
        return list(task_ids), 0
    complete = [task_id for task_id in task_ids if task_id < owners[-1]]
    return complete, 0 if complete else _delete_first_lines(connection, owners[-1], most)


def _delete_first_lines(connection: Connection, task_id: int, number: int) -> int:
    is_task = task_logs.c.task_id == task_id
    place = sa.select(task_logs.c.lease, task_logs.c.sequence).where(is_task).order_by(*KEY).offset(number).limit(1)
    end = connection.execute(place).one()
    is_before = sa.or_(
        task_logs.c.lease < end.lease, sa.and_(task_logs.c.lease == end.lease, task_logs.c.sequence < end.sequence)
    )
    return connection.execute(sa.delete(task_logs).where(is_task, is_before)).rowcount


def purge_lines(connection: Connection, age: float, limit: int = BATCH) -> int:
    """Delete lines that were logged more than ``age`` seconds ago, the oldest first."""
    return delete_oldest(connection, task_logs, task_logs.c.at, seconds_from_now(-age), limit)


def to_line(row: Mapping[Any, Any]) -> TaskLogLine:
    """The line of a row that has `LINE_COLUMNS`."""
    return TaskLogLine(**(dict(row) | {"fields": _parse_fields(row["fields"])}))


def _parse_fields(text: str | None) -> dict[str, Any] | None:
    """The fields of a line; of a row that was written by hand, any text."""
    if text is None:
        return None
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        found = text
    return found if isinstance(found, dict) else {"value": found}


# ---------------------------------------------------------------- writing lines


class LoggedLine(msgspec.Struct, frozen=True):
    """A line to be written, in the order of the columns; ``fields`` is JSON."""

    task_id: int
    lease: int
    sequence: int
    attempt: int
    at: datetime
    level: str
    logger: str
    message: str
    fields: str | None


_COLUMNS: Final = tuple(task_logs.c[name] for name in LoggedLine.__struct_fields__)
_VALUES: Final = {column.name: sa.bindparam(column.name, type_=column.type) for column in _COLUMNS}
_ON_MYSQL: Final = CompiledStatement(insert_new(task_logs, "mysql").values(_VALUES))
_ROW_ON_MYSQL: Final = f"({', '.join(['%s'] * len(_COLUMNS))})"


def insert_lines(connection: Connection, lines: Sequence[LoggedLine]) -> None:
    """Insert lines, but those whose key is there already."""
    if connection.dialect.name == "postgresql":
        _on_postgresql().run(connection, lines=msgspec.json.encode(lines).decode())
    elif connection.dialect.name in MYSQL:
        head = _ON_MYSQL.text(connection.dialect).sql.partition(" VALUES ")[0]
        rows = ", ".join([_ROW_ON_MYSQL] * len(lines))
        connection.exec_driver_sql(f"{head} VALUES {rows}", tuple(chain.from_iterable(_values(lines, "microseconds"))))
    else:
        text = _on_sqlite().text(connection.dialect).sql
        connection.exec_driver_sql(text, list(_values(lines, "milliseconds")))


def _values(lines: Sequence[LoggedLine], precision: str) -> Iterator[tuple[Any, ...]]:
    """The values of the columns; times as text in UTC, which both databases and their drivers take the fastest."""
    for line in lines:
        task_id, lease, sequence, attempt, moment, *rest = msgspec.structs.astuple(line)
        at = moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", precision)
        yield task_id, lease, sequence, attempt, at, *rest


@cache
def _on_sqlite() -> CompiledStatement:
    return CompiledStatement(insert_new(task_logs, "sqlite").values(_VALUES))


@cache
def _on_postgresql() -> CompiledStatement:
    from sqlalchemy.dialects import postgresql  # noqa: PLC0415 - each process loads its own dialect only

    listed = sa.func.json_to_recordset(sa.cast(sa.bindparam("lines"), postgresql.JSON))
    columns = [sa.column(column.name, column.type) for column in _COLUMNS]
    given = listed.table_valued(*columns, name="given").render_derived(with_types=True)
    chosen = sa.select(*given.c)
    insert = insert_new(task_logs, "postgresql")
    return CompiledStatement(insert.from_select(list(_VALUES), chosen, include_defaults=False))


# ---------------------------------------------------------------- searching lines


class FoundLine(msgspec.Struct, frozen=True, kw_only=True):
    """A log line, and its task; the queue and name are None where the task was deleted."""

    task_id: int
    queue: str | None
    name: str | None
    line: TaskLogLine


class LineSearch(msgspec.Struct, frozen=True, kw_only=True):
    """The lines that a search has found.

    Attributes:
        items: the newest first.
        searched_to: the time back to which lines were examined; None: all of the time that was asked for.
        next: ``after`` of the search that goes on from there; None with ``searched_to``.
    """

    items: list[FoundLine]
    searched_to: datetime | None
    next: str | None


class LineFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines are found: with a text in their message or fields, in any case; of these levels, queues, handlers."""

    text: str
    levels: Collection[str] | None = None
    queues: Collection[str] | None = None
    name: str | None = None

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        """The conditions on `task_logs` and `tasks`."""
        texts = (column.icontains(self.text, autoescape=True) for column in (task_logs.c.message, task_logs.c.fields))
        found: list[sa.ColumnElement[bool]] = [sa.or_(*texts)]
        if self.levels is not None:
            found.append(task_logs.c.level.in_(sorted(self.levels)))
        if self.queues is not None:
            found.append(tasks.c.queue.in_(sorted(self.queues)))
        if self.name is not None:
            found.append(tasks.c.name == self.name)
        return found


def search_lines(
    connection: Connection,
    wanted: LineFilter,
    seconds: float,
    *,
    after: int | None = None,
    limit: int = 100,
    search_time: float = SEARCH_TIME,
) -> LineSearch:
    """The newest lines that a filter finds.

    Args:
        connection: of a transaction that only reads.
        wanted: the filter.
        seconds: only lines of these last seconds.
        after: the number in ``next`` of the search that this one continues.
        limit: lines at the most. Of lines of one instant, all or none are found, unless they alone are more.
        search_time: seconds after which the search ends with the part of the lines that it examines.
    """
    until = time.monotonic() + search_time
    since = seconds_from_now(-seconds)
    before = None if after is None else EPOCH + timedelta(microseconds=after)
    items: list[FoundLine] = []
    while True:
        is_before: list[sa.ColumnElement[bool]] = [] if before is None else [task_logs.c.at < before]
        newest_first = sa.select(task_logs.c.at).where(task_logs.c.at >= since, *is_before)
        place = newest_first.order_by(task_logs.c.at.desc()).offset(PART - 1).limit(1)
        begin = connection.execute(place).scalar()
        # One lower bound alone: of two, SQLite may search the index by the earlier one.
        part = [task_logs.c.at >= (since if begin is None else begin), *is_before]
        items += _find(connection, wanted, part, limit + 1 - len(items))
        if len(items) > limit:
            return _cut(items, limit)
        if begin is None:
            return LineSearch(items=items, searched_to=None, next=None)
        before = begin
        if time.monotonic() > until:
            return LineSearch(items=items, searched_to=before, next=_cursor(before))


def _find(connection: Connection, wanted: LineFilter, part: list[sa.ColumnElement[bool]], most: int) -> list[FoundLine]:
    columns = (task_logs.c.task_id, tasks.c.queue, tasks.c.name, *LINE_COLUMNS)
    key = (task_logs.c.task_id, task_logs.c.lease.desc(), task_logs.c.sequence.desc())
    statement = (
        sa.select(*columns)
        .outerjoin_from(task_logs, tasks, tasks.c.id == task_logs.c.task_id)
        .where(*part, *wanted.conditions())
        .order_by(task_logs.c.at.desc(), *key)
        .limit(most)
    )
    found = []
    for row in connection.execute(by_index(statement, "task_logs_at", task_logs)).mappings():
        values = dict(row)
        of_task = {field: values.pop(field) for field in ("task_id", "queue", "name")}
        found.append(FoundLine(**of_task, line=to_line(values)))
    return found


def _cut(items: list[FoundLine], limit: int) -> LineSearch:
    """The first lines, without the lines of the last instant, because there are more of them."""
    last = items[limit].line.at
    kept = list(takewhile(lambda one: one.line.at > last, items)) or items[:limit]
    end = kept[-1].line.at
    return LineSearch(items=kept, searched_to=end, next=_cursor(end))


def _cursor(at: datetime) -> str:
    return str((at - EPOCH) // timedelta(microseconds=1))
