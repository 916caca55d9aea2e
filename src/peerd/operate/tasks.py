"""Tasks: look at them, retry, cancel, delete and move them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import Status
from peerd.domain.quoting import quoted
from peerd.domain.ring import Taken, Work
from peerd.domain.task import Attempt, Task
from peerd.operate import validation
from peerd.operate.operations import Ask, Colour, Group, operation, reading, writing
from peerd.operate.validation import InvalidFilter
from peerd.store.nodes.nodes import node_id_of
from peerd.store.tasks import actions, read
from peerd.store.tasks.read import Filter

Page = list[Task]
Attempts = list[Attempt]

LONGEST_PAGE = 10_000


class TaskFilter(msgspec.Struct, frozen=True):
    """Which tasks; what is None does not matter.

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
        """The same.

        Raises:
            InvalidFilter: no status has this name; a name that nothing can have.
        """
        for field in ("queue", "name", "node"):
            validation.text_or_none(field, getattr(self, field))
        if self.status is not None:
            known_status(self.status)
        return self


class Tasks(Group[Colour]):
    """``client.tasks``. An action on a running task takes effect at once: its holder can write nothing any more.

    An action with ``only`` is done if the task is one of those at that moment, and refused with `TaskNotFound` if not.
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
    ) -> Ask[Page]:
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
            InvalidFilter: no status has this name; a limit out of its range; a name that nothing can have.
            NodeNotFound: no node has this name.
        """
        return reading(
            _list,
            TaskFilter(queue, name, status, node).checked(),
            bodies=bool(bodies),
            before=None if before is None else validation.number("before", before, 0, validation.LARGEST_ID),
            limit=validation.number("limit", limit, 1, LONGEST_PAGE),
        )

    @operation
    def get(self, task_id: int) -> Ask[Task]:
        """The task of this id.

        Raises:
            TaskNotFound: it was deleted or purged, or never existed.
        """
        return reading(read.get_task, validation.task_id(task_id))

    @operation
    def find(self, task_id: int) -> Ask[Task | None]:
        """The task of this id, or None."""
        return reading(read.find_task, validation.task_id(task_id))

    @operation
    def attempts(self, task_id: int) -> Ask[Attempts]:
        """The attempts of a task that did not succeed, in their order; the one that did is in the task's own row.

        Raises:
            TaskNotFound: see `get`.
        """
        return reading(_attempts, validation.task_id(task_id))

    @operation
    def counts(self) -> Ask[dict[Status, int]]:
        """How many tasks there are of each status. It reads an index whole: not for every request of a page."""
        return reading(read.count_tasks)

    @operation
    def retry(self, task_id: int, *, only: TaskFilter | None = None) -> Ask[None]:
        """Let a task run again at once, with all its attempts before it, whatever became of it.

        Raises:
            TaskNotFound: it is not there, or not one of ``only``.
            IllegalTransition: it is pending already, or waits for others.
            KeyTaken: it has a unique key that a younger task holds now.
        """
        return _acting(actions.retry, only, validation.task_id(task_id)).and_ring(Taken((task_id,)), Work())

    @operation
    def cancel(self, task_id: int, reason: str = "canceled by hand", *, only: TaskFilter | None = None) -> Ask[None]:
        """End a task that has not ended.

        Raises:
            TaskNotFound: it is not there, or not one of ``only``.
            IllegalTransition: it has ended already.
        """
        canceling = _acting(actions.cancel, only, validation.task_id(task_id), validation.reason(reason))
        return canceling.and_ring(Taken((task_id,)))

    @operation
    def delete(self, task_id: int, *, only: TaskFilter | None = None) -> Ask[None]:
        """Delete a task and its attempts, whatever its status.

        Raises:
            TaskNotFound: it is not there, or not one of ``only``.
        """
        return _acting(actions.delete, only, validation.task_id(task_id)).and_ring(Taken((task_id,)))

    @operation
    def move(self, task_id: int, node: str | None, *, only: TaskFilter | None = None) -> Ask[None]:
        """Give a task to the node of this name, or to any (None). A running one becomes pending.

        Raises:
            TaskNotFound: it is not there, or not one of ``only``.
            NodeNotFound: no node has this name.
            IllegalTransition: it has ended.
        """
        moving = _acting(actions.move, only, validation.task_id(task_id), validation.text_or_none("node", node))
        return moving.and_ring(Taken((task_id,)), Work())


def known_status(word: str) -> Status:
    """The status of this name.

    Raises:
        InvalidFilter: there is none.
    """
    try:
        return Status(word)
    except (ValueError, TypeError, RecursionError):  # the last of one that is too deep to be quoted by Enum
        raise InvalidFilter("status", f"{quoted(word)} is none of {', '.join(Status)}") from None


def _list(connection: Connection, wanted: TaskFilter, /, **page: Any) -> Page:
    return read.list_tasks(connection, _found_by(connection, wanted), **page)


def _found_by(connection: Connection, wanted: TaskFilter) -> Filter:
    node_id = None if wanted.node is None else node_id_of(connection, wanted.node)
    status = None if wanted.status is None else known_status(wanted.status)
    return Filter(wanted.queue, wanted.name, status, node_id)


def _acting(act: Callable[..., None], only: TaskFilter | None, *args: object) -> Ask[None]:
    """An action on one task, if it is one of those that are meant."""
    wanted = (only or TaskFilter()).checked()
    return writing(lambda connection: act(connection, *args, only=_found_by(connection, wanted)))


def _attempts(connection: Connection, task_id: int) -> Attempts:
    read.get_task(connection, task_id)
    return read.list_attempts(connection, task_id)
