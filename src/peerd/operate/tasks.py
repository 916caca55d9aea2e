"""Tasks: read, retry, cancel, bury, kick, delete and move them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Self

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import Status
from peerd.domain.quoting import quoted
from peerd.domain.ring import ClaimRevoked, TasksAvailable
from peerd.domain.task import Attempt, Task
from peerd.operate import validation
from peerd.operate.operations import Mode, OperationGroup, Query, operation
from peerd.operate.validation import InvalidFilter
from peerd.store.nodes.nodes import get_node_id
from peerd.store.tasks import actions, read
from peerd.store.tasks.read import TaskConditions

Page = list[Task]
Attempts = list[Attempt]

MAX_PAGE = 10_000


class TaskFilter(msgspec.Struct, frozen=True):
    """Conditions on tasks; None is no condition.

    Args:
        queue: of this queue.
        name: of this handler.
        status: of this status.
        node: pinned to the node of this name, or held by it, now or last.
    """

    queue: str | None = None
    name: str | None = None
    status: Status | str | None = None
    node: str | None = None

    def checked(self) -> Self:
        """Check the values; raises `InvalidFilter` for a status or a name that no task can have."""
        for field in ("queue", "name", "node"):
            validation.text_or_none(field, getattr(self, field))
        if self.status is not None:
            parse_status(self.status)
        return self


class TaskOperations(OperationGroup[Mode]):
    """``client.tasks``. An action on a running task takes effect at once: its process cannot write to it any more.

    An action raises `TaskNotFound` if there is no such task, or if it does not meet the conditions of ``only`` when the
    action is written. All but `delete` raise `IllegalTransition` if its status does not allow them.
    """

    @operation
    def list(
        self,
        *,
        queue: str | None = None,
        name: str | None = None,
        status: Status | str | None = None,
        node: str | None = None,
        before: int | None = None,
        limit: int = 50,
        bodies: bool = True,
    ) -> Query[Page]:
        """A page of tasks, newest first.

        Args:
            queue: only of this queue.
            name: only of this handler.
            status: only of this status.
            node: only those pinned to the node of this name, or held by it, now or last.
            before: only ids below this one: the last of the page before.
            limit: tasks at the most, 1 to 10,000.
            bodies: read ``body``, ``body_bytes`` and ``result`` too, which may be large; with False they are None.

        Raises:
            InvalidFilter: a value is out of its range.
            NodeNotFound: no node has this name.
        """
        return Query(
            "read",
            _list,
            TaskFilter(queue, name, status, node).checked(),
            bodies=bool(bodies),
            before=None if before is None else validation.number("before", before, 0),
            limit=validation.number("limit", limit, 1, MAX_PAGE),
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


def parse_status(word: str) -> Status:
    """The status of this name; raises `InvalidFilter`."""
    try:
        return Status(word)
    except (ValueError, TypeError, RecursionError):  # RecursionError: a deep object, which Enum quotes
        raise InvalidFilter("status", f"{quoted(word)} is none of {', '.join(Status)}") from None


def _list(connection: Connection, task_filter: TaskFilter, /, **page: Any) -> Page:
    return read.list_tasks(connection, _to_filter(connection, task_filter), **page)


def _to_filter(connection: Connection, task_filter: TaskFilter) -> TaskConditions:
    node_id = None if task_filter.node is None else get_node_id(connection, task_filter.node)
    status = None if task_filter.status is None else parse_status(task_filter.status)
    return TaskConditions(task_filter.queue, task_filter.name, status, node_id)


def _action_query(action: Callable[..., None], only: TaskFilter | None, *args: object) -> Query[None]:
    task_filter = (only or TaskFilter()).checked()
    return Query("run", lambda connection: action(connection, *args, only=_to_filter(connection, task_filter)))


def _attempts(connection: Connection, task_id: int) -> Attempts:
    read.get_task(connection, task_id)
    return read.list_attempts(connection, task_id)
