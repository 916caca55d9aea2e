"""Tasks as an actor sees them: of its queues, and with masked values.

Another task is one that does not exist; what is masked is masked in every column that may hold it.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.access import Actor, Right
from peerd.domain.errors import NotPermitted, TaskNotFound
from peerd.domain.log_line import LogCursor, TaskLogLine
from peerd.domain.quoting import MASKED, Masker
from peerd.domain.task import Attempt, Task
from peerd.operate.task_filter import TaskFilter
from peerd.store.tasks import pages
from peerd.store.tasks.filters import TaskConditions, resolve_filter
from peerd.store.tasks.log_lines import (
    LastLines,
    LineFilter,
    LineSearch,
    LogPage,
    has_ended_long_ago,
    read_last_lines,
    read_lines,
    search_lines,
)
from peerd.store.tasks.pages import TaskPage


def require_readable(actor: Actor, masker: Masker | None, operation_name: str, wanted: TaskFilter) -> None:
    """Check that a filter does not search in what is masked for an actor; raises `NotPermitted`."""
    if masker is not None and not actor.may(Right.ADMIN) and wanted.reads_masked_columns():
        reason = "it searches in bodies or errors, and values in these are masked: that needs the right admin"
        raise NotPermitted(actor.name, operation_name, reason)


class TaskScope(msgspec.Struct, frozen=True):
    """A filter, the queues that an actor is restricted to, and what masks the tasks that it reads."""

    task_filter: TaskFilter
    queues: frozenset[str] | None
    masker: Masker | None

    def conditions(self, connection: Connection) -> TaskConditions:
        """The conditions for the store; raises `NodeNotFound`."""
        return resolve_filter(connection, **msgspec.structs.asdict(self.task_filter), queues=self.queues)

    def covers(self, task: Task) -> bool:
        """Whether the actor may see a task."""
        return self.queues is None or task.queue in self.queues

    def shown(self, task: Task) -> Task:
        """A task as the actor sees it."""
        return task if self.masker is None else mask_task(task, self.masker)


def mask_task(task: Task, masker: Masker) -> Task:
    """A task whose texts and bytes are masked."""
    texts: dict[str, Any] = {
        column: masker.json_text(text)
        for column in ("body", "result", "error", "progress_note")
        if (text := getattr(task, column)) is not None
    }
    if task.body_bytes is not None:
        texts["body_bytes"] = masker.bytes(task.body_bytes)
    return msgspec.structs.replace(task, **texts)


def _mask_attempt(attempt: Attempt, masker: Masker) -> Attempt:
    texts = {column: getattr(attempt, column) for column in ("error", "traceback", "cause")}
    masked = {column: masker.text(text) for column, text in texts.items() if text is not None}
    return msgspec.structs.replace(attempt, **masked)


def read_list(connection: Connection, scope: TaskScope, *, limit: int, bodies: bool) -> list[Task]:
    """The first tasks of a filter, however long they are searched for."""
    wanted = scope.conditions(connection)
    found = pages.list_tasks(connection, wanted, limit=limit, bodies=bodies, search_time=math.inf).items
    return [scope.shown(task) for task in found]


def read_page(connection: Connection, scope: TaskScope, /, **page: Any) -> TaskPage:
    """A page of the tasks of a filter."""
    found = pages.list_tasks(connection, scope.conditions(connection), **page)
    return msgspec.structs.replace(found, items=[scope.shown(task) for task in found.items])


def read_recent(connection: Connection, scope: TaskScope, ids: list[int], *, limit: int) -> list[Task]:
    """The tasks that work, ended last or are new, and some others."""
    found = pages.list_recent(connection, ids, wanted=scope.conditions(connection), limit=limit)
    return [scope.shown(task) for task in found]


def find_visible(connection: Connection, scope: TaskScope, task_id: int) -> Task | None:
    """A task, if the actor may see it."""
    task = pages.find_task(connection, task_id)
    return None if task is None or not scope.covers(task) else scope.shown(task)


def get_visible(connection: Connection, scope: TaskScope, task_id: int) -> Task:
    """Read a task that the actor sees. Raises TaskNotFound."""
    task = find_visible(connection, scope, task_id)
    if task is None:
        raise TaskNotFound(task_id)
    return task


def read_attempts(connection: Connection, scope: TaskScope, task_id: int) -> list[Attempt]:
    """The attempts of a task; raises `TaskNotFound`."""
    get_visible(connection, scope, task_id)
    found = pages.list_attempts(connection, task_id)
    return found if scope.masker is None else [_mask_attempt(attempt, scope.masker) for attempt in found]


def read_logs(
    connection: Connection, scope: TaskScope, task_id: int, /, *, after: LogCursor | None, **wanted: Any
) -> LogPage:
    """A page of the log lines of a task; raises `TaskNotFound`."""
    ended = has_ended_long_ago(connection, task_id)  # before the lines are read, so that none can be missed
    if ended is None or not _may_see(connection, scope, task_id):
        raise TaskNotFound(task_id)
    lines, has_more = read_lines(connection, task_id, after=after, **wanted)
    last = lines[-1].cursor if lines else None if after is None else after.text
    return LogPage(_mask_lines(lines, scope.masker), last, has_more, ended and not has_more)


def read_last_logs(connection: Connection, scope: TaskScope, task_id: int, most: int) -> LastLines:
    """The last log lines of a task; none of one that the actor may not see."""
    if not 0 < task_id < 2**63 or not _may_see(connection, scope, task_id):
        return LastLines([], 0)
    found = read_last_lines(connection, task_id, most)
    return msgspec.structs.replace(found, items=_mask_lines(found.items, scope.masker))


def find_log_lines(
    connection: Connection, wanted: LineFilter, masker: Masker | None, seconds: float, /, **page: Any
) -> LineSearch:
    """The newest log lines that a filter finds."""
    found = search_lines(connection, wanted, seconds, **page)
    lines = _mask_lines([one.line for one in found.items], masker)
    items = [msgspec.structs.replace(one, line=line) for one, line in zip(found.items, lines, strict=True)]
    return msgspec.structs.replace(found, items=items)


def _may_see(connection: Connection, scope: TaskScope, task_id: int) -> bool:
    return scope.queues is None or find_visible(connection, scope, task_id) is not None


def _mask_lines(lines: list[TaskLogLine], masker: Masker | None) -> list[TaskLogLine]:
    if masker is None:
        return lines
    return [
        msgspec.structs.replace(line, message=masker.text(line.message), fields=_mask_fields(line.fields, masker))
        for line in lines
    ]


def _mask_fields(fields: dict[str, Any] | None, masker: Masker) -> Any:
    try:
        return masker.value(fields)
    except RecursionError:  # it cannot look so deep
        return dict.fromkeys(fields or (), MASKED)
