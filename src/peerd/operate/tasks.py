"""Tasks: read, retry, cancel, bury, kick, snooze, delete, move and change them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Self, TypedDict, Unpack

import msgspec
from msgspec import UNSET
from sqlalchemy.engine import Connection

from peerd.domain.column_condition import parse_conditions
from peerd.domain.errors import InvalidFilter, InvalidTask, TaskNotFound
from peerd.domain.lifecycle import Status
from peerd.domain.log_line import LogCursor, levels_from
from peerd.domain.quoting import quoted
from peerd.domain.ring import ClaimRevoked, TasksAvailable
from peerd.domain.task import BODY_LIMIT, PRIORITY_RANGE, Attempt, Task, check_moment, check_text
from peerd.operate import validation
from peerd.operate.operations import Mode, OperationGroup, Query, operation
from peerd.operate.request import json_text
from peerd.store.nodes.nodes import get_node_id
from peerd.store.tasks import actions, pages, read
from peerd.store.tasks.filters import TaskConditions
from peerd.store.tasks.log_lines import LastLines, LogPage, has_ended_long_ago, read_last_lines, read_lines
from peerd.store.tasks.pages import TaskPage

TaskList = list[Task]
Attempts = list[Attempt]

MAX_PAGE = 10_000
MAX_LINES = 1000


class TaskFilter(msgspec.Struct, frozen=True):
    """Conditions on tasks, all of which hold; None is no condition.

    Args:
        queue: of this queue.
        name: of this handler.
        status: of this status.
        node: pinned to the node of this name, or held by it, now or last.
        search: with this text in the body or the error, in any case (on SQLite: of ASCII letters).
        where: comparisons of any column, such as ``"priority>=20"``; see `parse_condition`.
    """

    queue: str | None = None
    name: str | None = None
    status: Status | str | None = None
    node: str | None = None
    search: str | None = None
    where: Sequence[str] = ()

    def checked(self) -> Self:
        """Check the values; raises `InvalidFilter` for what no task can have, and for a wrong condition."""
        for field in ("queue", "name", "node"):
            validation.text_or_none(field, getattr(self, field))
        if self.status is not None:
            parse_status(self.status)
        if self.search is not None:
            validation.search(self.search)
        parse_conditions(self.where)
        return self


class TaskFilterOptions(TypedDict, total=False):
    """The fields of `TaskFilter`."""

    queue: str | None
    name: str | None
    status: Status | str | None
    node: str | None
    search: str | None
    where: Sequence[str]


class TaskOperations(OperationGroup[Mode]):
    """``client.tasks``. An action on a running task takes effect at once: its process cannot write to it any more.

    An action raises `TaskNotFound` if there is no such task, or if it does not meet the conditions of ``only`` when the
    action is written. All but `delete` raise `IllegalTransition` if its status does not allow them.
    """

    @operation
    def list(self, *, limit: int = 50, bodies: bool = True, **conditions: Unpack[TaskFilterOptions]) -> Query[TaskList]:
        """The first tasks that meet a filter, in the order of `page`, however long they are searched for.

        Args:
            limit: tasks at the most, 1 to 10,000.
            bodies: read ``body``, ``body_bytes`` and ``result`` too, which may be large; with False they are None.
            conditions: the fields of `TaskFilter`.

        Raises:
            InvalidFilter: a value is out of its range.
            NodeNotFound: no node has this name.
        """
        most = validation.number("limit", limit, 1, MAX_PAGE)
        return Query("read", _list, TaskFilter(**conditions).checked(), limit=most, bodies=bool(bodies))

    @operation
    def page(
        self,
        *,
        after: str | None = None,
        limit: int = 50,
        bodies: bool = True,
        **conditions: Unpack[TaskFilterOptions],
    ) -> Query[TaskPage]:
        """A page of the tasks that meet a filter, at a cost that does not depend on the number of tasks.

        The status decides the order: ended tasks, the latest end first; scheduled ones and failures, the soonest first;
        pending ones of one queue, as claims take them; all others, the newest first.

        Args:
            after: ``next`` of the page before.
            limit: tasks at the most, 1 to 10,000.
            bodies: as for `list`.
            conditions: the fields of `TaskFilter`. Where they are rare, a page that was searched for a while may have
                few tasks, or none, and a next one.

        Raises:
            InvalidFilter: a value is out of its range, or ``after`` is of another filter.
            NodeNotFound: no node has this name.
        """
        return Query(
            "read",
            _page,
            TaskFilter(**conditions).checked(),
            after=validation.cursor(after),
            limit=validation.number("limit", limit, 1, MAX_PAGE),
            bodies=bool(bodies),
        )

    @operation
    def get(self, task_id: int) -> Query[Task]:
        """The task of this id; raises `TaskNotFound`."""
        return Query("read", read.get_task, validation.task_id(task_id))

    @operation
    def find(self, task_id: int) -> Query[Task | None]:
        """The task of this id, or None."""
        return Query("read", read.find_task, validation.task_id(task_id))

    @operation
    def attempts(self, task_id: int) -> Query[Attempts]:
        """The attempts of a task that did not succeed, in their order; raises `TaskNotFound`."""
        return Query("read", _attempts, validation.task_id(task_id))

    @operation
    def logs(
        self,
        task_id: int,
        *,
        after: str | None = None,
        limit: int = 200,
        attempt: int | None = None,
        level: str | None = None,
    ) -> Query[LogPage]:
        """What the code of a task has logged: a page of lines, by claim and number. It can be followed.

        Args:
            task_id: the task's.
            after: ``next`` of an earlier page; only lines after it.
            limit: lines at the most, 1 to 1,000.
            attempt: of the attempt of this number only, from 1.
            level: of this level or a higher one: debug, info, warning, error, critical.

        Raises:
            TaskNotFound: there is no such task.
            InvalidFilter: a value is out of its range.
        """
        return Query(
            "read",
            _logs,
            validation.task_id(task_id),
            after=None if after is None else LogCursor.parse(after),
            limit=validation.number("limit", limit, 1, MAX_LINES),
            attempt=None if attempt is None else validation.number("attempt", attempt, 1, 2**31 - 1),
            levels=None if level is None else levels_from(level),
        )

    @operation
    def last_logs(self, task_id: int, *, limit: int = 10) -> Query[LastLines]:
        """The last lines of the latest attempt that has logged any, and how many lines the task has.

        Args:
            task_id: the task's.
            limit: lines at the most, 1 to 1,000.

        Raises:
            InvalidFilter: the limit is out of its range.
        """
        most = validation.number("limit", limit, 1, MAX_LINES)
        return Query("read", read_last_lines, validation.task_id(task_id), most)

    @operation
    def counts(self) -> Query[dict[Status, int]]:
        """How many tasks there are of each status. It scans an index: not for each view of a web page."""
        return Query("read", read.count_tasks)

    @operation
    def retry(self, task_id: int, *, only: TaskFilter | None = None) -> Query[None]:
        """Let a task run again at once, with all its attempts, whatever its outcome was.

        Raises:
            UniqueKeyTaken: a younger task has its unique key.
        """
        query = _action_query(actions.retry, only, validation.task_id(task_id))
        return query.then_ring(ClaimRevoked((task_id,)), TasksAvailable())

    @operation
    def cancel(self, task_id: int, reason: str = "canceled by hand", *, only: TaskFilter | None = None) -> Query[None]:
        """End a task that has not ended."""
        query = _action_query(actions.cancel, only, validation.task_id(task_id), validation.reason(reason))
        return query.then_ring(ClaimRevoked((task_id,)))

    @operation
    def bury(self, task_id: int, *, only: TaskFilter | None = None) -> Query[None]:
        """Set aside a task that has not ended: no worker and no queue client gets it until it is kicked or retried."""
        query = _action_query(actions.bury, only, validation.task_id(task_id), time.time_ns() // 1000)
        return query.then_ring(ClaimRevoked((task_id,)))

    @operation
    def kick(self, task_id: int, *, only: TaskFilter | None = None) -> Query[None]:
        """Make a task pending that is buried, scheduled, or waits for another attempt; its attempts stay counted."""
        return _action_query(actions.kick, only, validation.task_id(task_id)).then_ring(TasksAvailable())

    @operation
    def delete(self, task_id: int, *, only: TaskFilter | None = None) -> Query[None]:
        """Delete a task and its attempts, whatever its status."""
        return _action_query(actions.delete, only, validation.task_id(task_id)).then_ring(ClaimRevoked((task_id,)))

    @operation
    def move(self, task_id: int, node: str | None, *, only: TaskFilter | None = None) -> Query[None]:
        """Pin a task to the node of this name, or to none (None). A running one becomes pending.

        Raises:
            NodeNotFound: no node has this name.
        """
        query = _action_query(actions.move, only, validation.task_id(task_id), validation.text_or_none("node", node))
        return query.then_ring(ClaimRevoked((task_id,)), TasksAvailable())

    @operation
    def move_to_queue(self, task_id: int, queue: str, *, only: TaskFilter | None = None) -> Query[None]:
        """Put a task into another queue. A running one becomes pending.

        Raises:
            UniqueKeyTaken: a task of that queue has its unique key.
        """
        query = _action_query(actions.move_to_queue, only, validation.task_id(task_id), validation.queue(queue))
        return query.then_ring(ClaimRevoked((task_id,)), TasksAvailable((queue,)))

    @operation
    def snooze(self, task_id: int, duration: str | float, *, only: TaskFilter | None = None) -> Query[None]:
        """Let a task start later. The attempt of a running one ends, and is not counted.

        Args:
            task_id: the task's.
            duration: seconds from now, or "1h".
            only: as for all actions.
        """
        seconds = validation.seconds("duration", duration)
        check_moment("start", None, seconds)
        query = _action_query(actions.snooze, only, validation.task_id(task_id), seconds)
        return query.then_ring(ClaimRevoked((task_id,)))

    @operation
    def change(
        self,
        task_id: int,
        *,
        priority: int | None = None,
        body: object = UNSET,
        only: TaskFilter | None = None,
    ) -> Query[None]:
        """Change the priority or the body of a task that neither runs nor has ended.

        Args:
            task_id: the task's.
            priority: the larger one is claimed first.
            body: any JSON value; of a handler's task, the object of its arguments.
            only: as for all actions.

        Raises:
            InvalidTask: a body that cannot be written as JSON, or is too large; or nothing to change.
        """
        values: dict[str, object] = {}
        if priority is not None:
            values["priority"] = validation.number("priority", priority, *PRIORITY_RANGE)
        if body is not UNSET:
            values |= {"body": json_text("body", body), "body_bytes": None}
            check_text("body", str(values["body"]), BODY_LIMIT)
        if not values:
            raise InvalidTask("priority", "nothing is to be changed; give a priority or a body")
        query = _action_query(actions.change, only, validation.task_id(task_id), **values)
        return query.then_ring(TasksAvailable())


def parse_status(word: str) -> Status:
    """The status of this name; raises `InvalidFilter`."""
    try:
        return Status(word)
    except (ValueError, TypeError, RecursionError):  # RecursionError: a deep object, which Enum quotes
        raise InvalidFilter("status", f"{quoted(word)} is none of {', '.join(Status)}") from None


def _list(connection: Connection, task_filter: TaskFilter, *, limit: int, bodies: bool) -> TaskList:
    wanted = _to_filter(connection, task_filter)
    return pages.list_tasks(connection, wanted, limit=limit, bodies=bodies, search_time=math.inf).items


def _page(connection: Connection, task_filter: TaskFilter, /, **page: Any) -> TaskPage:
    return pages.list_tasks(connection, _to_filter(connection, task_filter), **page)


def _to_filter(connection: Connection, task_filter: TaskFilter) -> TaskConditions:
    return TaskConditions(
        queue=task_filter.queue,
        name=task_filter.name,
        status=None if task_filter.status is None else parse_status(task_filter.status),
        node_id=None if task_filter.node is None else get_node_id(connection, task_filter.node),
        search=task_filter.search,
        where=parse_conditions(task_filter.where),
    )


def _action_query(action: Callable[..., None], only: TaskFilter | None, *args: object, **values: object) -> Query[None]:
    task_filter = (only or TaskFilter()).checked()

    def act(connection: Connection) -> None:
        action(connection, *args, only=_to_filter(connection, task_filter), **values)

    return Query("run", act)


def _logs(connection: Connection, task_id: int, /, *, after: LogCursor | None, **wanted: Any) -> LogPage:
    ended = has_ended_long_ago(connection, task_id)  # before the lines are read, so that none can be missed
    if ended is None:
        raise TaskNotFound(task_id)
    lines, has_more = read_lines(connection, task_id, after=after, **wanted)
    last = lines[-1].cursor if lines else None if after is None else after.text
    return LogPage(lines, last, has_more, ended and not has_more)


def _attempts(connection: Connection, task_id: int) -> Attempts:
    read.get_task(connection, task_id)
    return read.list_attempts(connection, task_id)
