"""Searching the log lines of all tasks, the newest first: in parts of the index of their times, for a bounded time."""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.log_line import TaskLogLine
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import task_logs, tasks
from peerd.store.tasks.conditions import by_index
from peerd.store.tasks.log_lines import LINE_COLUMNS, to_line

PART: Final = 2_000
"""Lines that one statement examines."""
SEARCH_TIME: Final = 0.1
"""Seconds after which no further part is examined."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


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
    """The first lines, without those of the last instant, of which there are more."""
    last = items[limit].line.at
    kept = list(takewhile(lambda one: one.line.at > last, items)) or items[:limit]
    end = kept[-1].line.at
    return LineSearch(items=kept, searched_to=end, next=_cursor(end))


def _cursor(at: datetime) -> str:
    return str((at - EPOCH) // timedelta(microseconds=1))
