"""Pages of tasks: a filter's tasks, a page at a time, at a cost that does not depend on the number of rows.

The status of a filter chooses an index, and the order of the pages is the order of that index:

- done, dead, canceled: the latest end first;
- scheduled, failure: the soonest first;
- pending, in one queue: as claims take them, tasks without a limit key before those with one;
- everything else: the newest first. Working tasks are few, so they are sorted.

A page walks entries of that index from its cursor, and reads the rows of some of them at a time by primary key, under
the other conditions of the filter. Where these find little, the walk ends when its time is over; the page says how many
entries it has examined, and the next one goes on from there.

A cursor is the place of one entry: the values of the index's columns.

The entries behind one are found span by span, because a comparison of whole rows is a range for PostgreSQL only. In the
order (a, b, id), behind (1, 2, 3) are first those with a = 1, b = 2, id > 3; then those with a = 1, b > 2; then those
with a > 1. Each span is one range of the index. A place may have the first columns of the order only: behind (1, 2) is
what follows the last entry with a = 1 and b = 2, so that a walk can jump from one prefix to the next.
"""

from __future__ import annotations

import base64
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.attempt_totals import CRASH_LABELS, FAILURE_LABELS
from peerd.domain.column_condition import searchable
from peerd.domain.errors import InvalidFilter, TaskNotFound
from peerd.domain.lifecycle import FINISHED, Status
from peerd.domain.task import EARLIEST, LATEST, Attempt, Task
from peerd.store.schema.tables import attempts, tasks
from peerd.store.schema.types import Instant, seconds_from_now
from peerd.store.tasks.conditions import (
    PENDING_KINDS,
    PENDING_WITHOUT_KEY,
    TaskKind,
    by_index,
    is_closing_as,
    is_waiting_as,
    is_working,
    select_by_id,
)
from peerd.store.tasks.filters import TaskConditions
from peerd.store.tasks.rows import BATCH, SMALL_COLUMNS, TASK_COLUMNS, by_id_only, to_task

SEARCH_TIME: Final = 0.08
"""Seconds after which a page that is not full ends."""
FIRST_EXAMINED: Final = 100
MOST_EXAMINED: Final = 2_000
"""Entries that are examined between two looks at the clock."""
PRIMARY: Final = "PRIMARY"
Values = tuple[Any, ...]
"""Values of the columns of an order, or of the first ones of them."""


class TaskPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of tasks.

    Attributes:
        items: the tasks.
        next: the cursor of the next page; None when this is the last one.
        examined: tasks that were compared with the filter. Where it is rare, a page may have few items, or none, and
            have a next one.
    """

    items: list[Task]
    next: str | None
    examined: int


class EntryPlace(NamedTuple):
    """The place of an entry."""

    section: int
    values: Values

    @property
    def task_id(self) -> int:
        """The last column of each order."""
        return int(self.values[-1])


def list_tasks(
    connection: Connection,
    wanted: TaskConditions | None = None,
    *,
    after: str | None = None,
    limit: int = 50,
    bodies: bool = True,
    search_time: float = SEARCH_TIME,
) -> TaskPage:
    """A page of the tasks that meet a filter.

    Args:
        connection: of a transaction that only reads.
        wanted: the filter.
        after: the cursor of the page before this one.
        limit: tasks at the most.
        bodies: read bodies and results, which may be large; without them they are None.
        search_time: seconds after which a page that is not full ends.

    Raises:
        InvalidFilter: ``after`` is no cursor of this filter.
    """
    wanted = wanted or TaskConditions()
    sections = sections_of(wanted)
    place = EntryPlace(0, ()) if after is None else decode_place(after, wanted, sections)
    first_read = limit + 1 if _index_decides(wanted) else FIRST_EXAMINED
    until = time.monotonic() + search_time
    items: list[Task] = []
    examined = 0
    for places, is_last in walk_sections(connection, sections, place, first_read):
        found = _read_rows(connection, [entry.task_id for entry in places], wanted, bodies=bodies)
        for entry in places:
            task = found.get(entry.task_id)
            if task is not None and len(items) == limit:
                return TaskPage(items=items, next=encode_place(place, wanted), examined=examined)
            place = entry
            examined += 1
            if task is not None:
                items.append(task)
        if time.monotonic() > until and not is_last:
            return TaskPage(items=items, next=encode_place(place, wanted), examined=examined)
    return TaskPage(items=items, next=None, examined=examined)


def list_recent(
    connection: Connection, ids: Collection[int] = (), *, wanted: TaskConditions | None = None, limit: int = 100
) -> list[Task]:
    """The tasks that work, the latest of each status that ended, and the newest, so many of each, without bodies.

    Each of them comes from the beginning of an index, so the cost does not depend on the number of tasks.

    Args:
        connection: of a transaction that only reads.
        ids: of further tasks.
        wanted: a filter without a status, which all of them meet.
        limit: of each kind at the most.
    """
    found: dict[int, Task] = {}
    wanted = wanted or TaskConditions()
    for status in (Status.WORKING, *FINISHED, None):
        page = list_tasks(connection, msgspec.structs.replace(wanted, status=status), limit=limit, bodies=False)
        found |= {task.id: task for task in page.items}
    found |= _read_rows(connection, sorted(set(ids) - set(found)), wanted, bodies=False)
    return sorted(found.values(), key=lambda task: task.id)


def sections_of(wanted: TaskConditions) -> list[IndexSection]:
    """The index entries among which all tasks of a filter are."""
    match wanted.status:
        case status if status in FINISHED:
            order = (tasks.c.closing_at, tasks.c.id)
            return [IndexSection(is_closing_as(Status(status)), "tasks_closing", order, descending=True)]
        case Status.SCHEDULED | Status.FAILURE:
            return [IndexSection(is_waiting_as(wanted.status), "tasks_due", (tasks.c.due_at, tasks.c.id))]
        case Status.PENDING if wanted.queue is not None:
            return [section_of(kind, wanted.queue) for kind in PENDING_KINDS]
        case Status.WORKING:
            order = (tasks.c.created_at, tasks.c.id)  # in no index, so that the small one of working tasks is used
            return [IndexSection(is_working(), PENDING_WITHOUT_KEY.index, order, descending=True)]
        case _:
            return [IndexSection(None, PRIMARY, (tasks.c.id,), descending=True)]


def _index_decides(wanted: TaskConditions) -> bool:
    """Whether all entries of the sections meet the filter, so that a page reads no more of them than it shows."""
    in_index = {"status"} if sections_of(wanted)[0].condition is not None else set()
    if wanted.status is Status.PENDING:
        in_index |= {"queue"}
    nothing = TaskConditions()
    return all(
        field in in_index or getattr(wanted, field) == getattr(nothing, field) for field in wanted.__struct_fields__
    )


def walk_sections(
    connection: Connection,
    sections: Sequence[IndexSection],
    place: EntryPlace,
    size: int,
    largest: int = MOST_EXAMINED,
) -> Iterator[tuple[list[EntryPlace], bool]]:
    """The places behind one, some at a time, more and more of them; and whether they are the last ones.

    The last ones may be none.
    """
    number, values = place
    while number < len(sections):
        entries = entries_behind(connection, sections[number], values, size)
        is_end = len(entries) < size
        is_last = is_end and number == len(sections) - 1
        if entries or is_last:
            yield [EntryPlace(number, entry) for entry in entries], is_last
        if entries:
            values = entries[-1]
        if is_end:
            number, values = number + 1, ()
        size = min(2 * size, largest)


def _read_rows(connection: Connection, ids: Sequence[int], wanted: TaskConditions, *, bodies: bool) -> dict[int, Task]:
    """The rows of these ids that meet the filter."""
    found: dict[int, Task] = {}
    columns = TASK_COLUMNS if bodies else SMALL_COLUMNS
    conditions = wanted.conditions()
    for start in range(0, len(ids), BATCH):
        statement = sa.select(*columns).where(*by_id_only(connection, ids[start : start + BATCH], conditions))
        for row in connection.execute(select_by_id(statement)).mappings():
            found[row["id"]] = to_task(row)
    return found


class _Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The place of the last entry of a page, and the filter of the page; texts stand for times, too."""

    filter: str
    section: int
    values: list[int | str]


def encode_place(place: EntryPlace, wanted: TaskConditions) -> str:
    """The cursor of a place in the sections of a filter."""
    values = [value.isoformat() if isinstance(value, datetime) else value for value in place.values]
    cursor = _Cursor(_digest(wanted), place.section, values)
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).rstrip(b"=").decode()


def decode_place(text: str, wanted: TaskConditions, sections: Sequence[IndexSection]) -> EntryPlace:
    """The place of a cursor.

    Raises:
        InvalidFilter: it is no cursor of this filter.
    """
    problem = InvalidFilter("after", "this is no cursor of a page of this filter; leave it out to begin anew")
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        cursor = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Cursor)
        if cursor.filter != _digest(wanted) or not 0 <= cursor.section < len(sections):
            raise problem
        order = sections[cursor.section].order
        values = [_column_value(column, value) for column, value in zip(order, cursor.values, strict=True)]
    except (ValueError, OverflowError, msgspec.MsgspecError):
        raise problem from None
    return EntryPlace(cursor.section, tuple(values))


def _column_value(column: sa.ColumnElement[Any], value: int | str) -> Any:
    """The value of a column; raises ValueError for what it cannot hold."""
    if isinstance(column.type, sa.Integer):
        if not isinstance(value, int) or not -(2**63) <= value < 2**63:
            raise ValueError(value)
        return value
    if not isinstance(column.type, Instant):
        return searchable("after", str(value))
    moment = datetime.fromisoformat(str(value))
    if moment.tzinfo is None or not EARLIEST <= moment < LATEST:
        raise ValueError(value)
    return moment


def _digest(wanted: TaskConditions) -> str:
    return blake2b(msgspec.json.encode(wanted), digest_size=6).hexdigest()


# ---------------------------------------------------------------- read


def find_task(connection: Connection, task_id: int) -> Task | None:
    """The task of this id, if it is there."""
    if not 0 < task_id < 2**63:
        return None
    row = connection.execute(sa.select(*TASK_COLUMNS).where(tasks.c.id == task_id)).mappings().first()
    return None if row is None else to_task(row)


def get_task(connection: Connection, task_id: int) -> Task:
    """The task of this id.

    Raises:
        TaskNotFound: it is not there.
    """
    task = find_task(connection, task_id)
    if task is None:
        raise TaskNotFound(task_id)
    return task


def list_attempts(connection: Connection, task_id: int) -> list[Attempt]:
    """The attempts of a task that did not succeed, in their order."""
    columns = [attempts.c[field] for field in Attempt.__struct_fields__]
    statement = sa.select(*columns).where(attempts.c.task_id == task_id).order_by(attempts.c.id)
    return [Attempt(**row) for row in connection.execute(statement).mappings()]


def count_tasks(connection: Connection, queues: Collection[str] | None = None) -> dict[Status, int]:
    """How many tasks there are of each status, in all queues or in these.

    It reads a whole index, or the table: not for every request of a page.
    """
    counts = dict.fromkeys(Status, 0)
    statement = sa.select(tasks.c.status, sa.func.count()).group_by(tasks.c.status)
    if queues is not None:
        statement = statement.where(tasks.c.queue.in_(sorted(queues)))
    for status, count in connection.execute(statement):
        counts[Status(status)] = count
    return counts


# ---------------------------------------------------------------- entries of an index


class IndexSection(msgspec.Struct, frozen=True):
    """Entries of an index that meet a condition, in the order of its columns; the last one is the id."""

    condition: sa.ColumnElement[bool] | None
    index: str
    order: tuple[sa.ColumnElement[Any], ...]
    descending: bool = False


def section_of(kind: TaskKind, queue: str) -> IndexSection:
    """The tasks of a queue and a kind; pending ones as claims take them: those for one node behind those for any."""
    return IndexSection(kind.of(queue), kind.index, kind.order)


def entries_behind(
    connection: Connection, section: IndexSection, values: Values, most: int, *columns: sa.ColumnElement[Any]
) -> list[Values]:
    """The next entries of a section.

    Args:
        connection: of any transaction.
        section: the entries.
        values: of the entry, or of the prefix, behind which they are; empty: from the beginning.
        most: entries at the most.
        columns: what is read; without them, the columns of the order.
    """
    direction = sa.desc if section.descending else sa.asc
    read = sa.select(*(columns or section.order)).order_by(*map(direction, section.order))
    found: list[Values] = []
    for span in _spans(section, values):
        conditions = span if section.condition is None else [section.condition, *span]
        statement = by_index(read.where(*conditions), section.index).limit(most - len(found))
        found += [tuple(row) for row in connection.execute(statement)]
        if len(found) >= most:
            break
    return found


def _spans(section: IndexSection, values: Values) -> Iterator[list[sa.ColumnElement[bool]]]:
    """The ranges of an index that are behind an entry, in its order; the whole section if there is no entry."""
    if not values:
        yield []
    for level in reversed(range(len(values))):
        column, value = section.order[level], values[level]
        behind = column < value if section.descending else column > value
        yield [*(column == value for column, value in zip(section.order[:level], values, strict=False)), behind]


# ---------------------------------------------------------------- failed attempts


MOST_ATTEMPTS: Final = 5_000
"""Attempts that one look reads."""
MOST_TEXT: Final = 1_000
"""Characters that are read of an error."""


class FailedAttempt(msgspec.Struct, frozen=True):
    """An attempt that failed, and its task.

    Attributes:
        queue, name: of the task.
        task_id: the task's.
        is_dead: the task is dead now.
        error: the beginning of its text.
        cause: how its process died, if it did.
        ended_at: when.
        process_id: of the process that ran it.
        outcome: its label.
    """

    queue: str
    name: str
    task_id: int
    is_dead: bool
    error: str
    cause: str | None
    ended_at: datetime
    process_id: int | None
    outcome: str


class FailedAttempts(msgspec.Struct, frozen=True):
    """Failed attempts, the newest first; ``complete``: there are no more of that time."""

    items: list[FailedAttempt]
    complete: bool


def list_failed_attempts(
    connection: Connection,
    seconds: float,
    queues: Collection[str] | None = None,
    name: str | None = None,
    most: int = MOST_ATTEMPTS,
) -> FailedAttempts:
    """The attempts that failed in the last seconds, among the newest that did not succeed.

    Args:
        connection: of any transaction.
        seconds: of time.
        queues: only those of tasks of these queues.
        name: only those of tasks with this name.
        most: attempts that are examined at the most.
    """
    newest = sa.select(attempts).order_by(attempts.c.id.desc()).limit(most).subquery("newest")
    is_recent = newest.c.ended_at >= seconds_from_now(-seconds)
    error = sa.func.substr(newest.c.error, 1, MOST_TEXT)
    columns = (newest.c.cause, newest.c.ended_at, newest.c.process_id, newest.c.outcome)
    statement = sa.select(is_recent, tasks.c.queue, tasks.c.name, tasks.c.id, tasks.c.status, error, *columns)
    joined = statement.outerjoin_from(newest, tasks, tasks.c.id == newest.c.task_id).order_by(newest.c.id.desc())
    rows = connection.execute(joined).all()
    found = [
        FailedAttempt(queue, handler, task_id, status == Status.DEAD, error or "", *others)
        for recent, queue, handler, task_id, status, error, *others in rows
        if recent and others[-1] in FAILURE_LABELS and task_id is not None
        if (queues is None or queue in queues) and (name is None or handler == name)
    ]
    return FailedAttempts(found, len(rows) < most or not rows[-1][0])


def tasks_lost_with_processes(connection: Connection, queues: Collection[str] | None = None) -> dict[int, list[int]]:
    """The tasks that processes ran when they died, by the ids of the processes, among the newest attempts.

    Args:
        connection: of any transaction.
        queues: only tasks of these queues.
    """
    newest = sa.select(attempts).order_by(attempts.c.id.desc()).limit(MOST_ATTEMPTS).subquery("newest")
    has_died = (newest.c.outcome.in_(CRASH_LABELS), newest.c.process_id.is_not(None))
    joined = sa.select(newest.c.process_id, tasks.c.id).join_from(newest, tasks, tasks.c.id == newest.c.task_id)
    of_queues = sa.true() if queues is None else tasks.c.queue.in_(queues)
    lost: dict[int, list[int]] = defaultdict(list)
    for process_id, task_id in connection.execute(joined.where(*has_died, of_queues).order_by(newest.c.id.desc())):
        lost[process_id].append(task_id)
    return lost
