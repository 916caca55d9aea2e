"""Tasks: read, retry, cancel, bury, kick, snooze, delete, move and change them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from msgspec import UNSET
from sqlalchemy.engine import Connection

from peerd.domain import bulk
from peerd.domain.access import Right
from peerd.domain.errors import InvalidFilter
from peerd.domain.lifecycle import Status
from peerd.domain.log_line import LogCursor, levels_from
from peerd.domain.node_request import StackArguments
from peerd.domain.outcome import ERROR_LIMIT, truncate
from peerd.domain.ring import ClaimRevoked, TasksAvailable
from peerd.domain.task import PRIORITY_RANGE, Attempt, Task
from peerd.domain.task_stack import TaskStack
from peerd.operate import validation, visible_tasks
from peerd.operate.node_requests import ANSWER_MARGIN, request_and_wait, requester_name, wait_seconds
from peerd.operate.operations import Mode, OperationGroup, Query, QuerySequence, Steps, operation
from peerd.operate.request import json_text
from peerd.operate.rest import rest
from peerd.operate.statistics import LONGEST
from peerd.operate.task_filter import TaskFilter, TaskFilterOptions
from peerd.store.audit import task_state
from peerd.store.tasks import pages
from peerd.store.tasks.actions import act_on_task
from peerd.store.tasks.counts import find_task_process
from peerd.store.tasks.log_lines import LastLines, LineFilter, LineSearch, LogPage
from peerd.store.tasks.pages import TaskPage

TaskList = list[Task]
Attempts = list[Attempt]

MAX_PAGE = 10_000
MAX_RECENT = 1_000
MAX_LINES = 1_000


class TaskOperations(OperationGroup[Mode]):
    """``client.tasks``. An action on a running task takes effect at once: its process cannot write to it any more.

    An action raises `TaskNotFound` if there is no such task. All but `delete` raise `IllegalTransition` if its status
    does not allow them.
    """

    subject = "tasks"

    @operation(in_queues=True)
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
        scope = self._scope("tasks.list", TaskFilter(**conditions).checked())
        return Query("read", visible_tasks.read_list, scope, limit=most, bodies=bool(bodies))

    @operation(in_queues=True, rest=rest("GET /tasks", name="list_tasks", fixed={"bodies": False}))
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
            visible_tasks.read_page,
            self._scope("tasks.page", TaskFilter(**conditions).checked()),
            after=validation.cursor(after),
            limit=validation.number("limit", limit, 1, MAX_PAGE),
            bodies=bool(bodies),
        )

    @operation(in_queues=True)
    def recent(self, ids: Sequence[int] = (), *, limit: int = 100) -> Query[TaskList]:
        """The tasks that work, the latest of each status that ended, and the newest, by id and without their bodies.

        It costs the same in a large table, so that it can be read every few seconds.

        Args:
            ids: of further tasks, at most 1,000; those that do not exist are left out.
            limit: tasks of each kind at the most, 1 to 1,000.

        Raises:
            InvalidFilter: a value is out of its range.
        """
        if len(ids) > MAX_RECENT:
            raise InvalidFilter("ids", f"{len(ids)} are more than {MAX_RECENT}")
        wanted = [one for one in map(validation.task_id, ids) if 0 < one <= validation.MAX_ID]
        most = validation.number("limit", limit, 1, MAX_RECENT)
        return Query("read", visible_tasks.read_recent, self._scope("tasks.recent"), wanted, limit=most)

    @operation(in_queues=True)
    def get(self, task_id: int) -> Query[Task]:
        """The task of this id; raises `TaskNotFound`."""
        return Query("read", visible_tasks.get_visible, self._scope("tasks.get"), validation.task_id(task_id))

    @operation(in_queues=True)
    def find(self, task_id: int) -> Query[Task | None]:
        """The task of this id, or None."""
        return Query("read", visible_tasks.find_visible, self._scope("tasks.find"), validation.task_id(task_id))

    @operation(in_queues=True)
    def attempts(self, task_id: int) -> Query[Attempts]:
        """The attempts of a task that did not succeed, in their order; raises `TaskNotFound`."""
        return Query("read", visible_tasks.read_attempts, self._scope("tasks.attempts"), validation.task_id(task_id))

    @operation(in_queues=True, rest=rest("GET /tasks/{task_id}/logs"))
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
            visible_tasks.read_logs,
            self._scope("tasks.logs"),
            validation.task_id(task_id),
            after=None if after is None else LogCursor.parse(after),
            limit=validation.number("limit", limit, 1, MAX_LINES),
            attempt=None if attempt is None else validation.number("attempt", attempt, 1, 2**31 - 1),
            levels=None if level is None else levels_from(level),
        )

    @operation(in_queues=True)
    def last_logs(self, task_id: int, *, limit: int = 10) -> Query[LastLines]:
        """The last lines of the latest attempt that has logged any, and how many lines the task has.

        Args:
            task_id: the task's.
            limit: lines at the most, 1 to 1,000.

        Raises:
            InvalidFilter: the limit is out of its range.
        """
        most = validation.number("limit", limit, 1, MAX_LINES)
        return Query(
            "read", visible_tasks.read_last_logs, self._scope("tasks.last_logs"), validation.task_id(task_id), most
        )

    @operation(in_queues=True, rest=rest("GET /logs", name="search"))
    def search_logs(
        self,
        text: str,
        *,
        since: str | float = "1d",
        queue: str | None = None,
        name: str | None = None,
        level: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Query[LineSearch]:
        """The newest log lines with a text, of all tasks. A search ends after a tenth of a second, and can go on.

        Args:
            text: a part of the message or of the fields, in any case (on SQLite: of ASCII letters).
            since: only of so many last seconds, or "1d"; at most a year.
            queue: only of tasks of this queue.
            name: only of tasks with this name.
            level: of this level or a higher one: debug, info, warning, error, critical.
            after: ``next`` of an earlier answer, to go on from there.
            limit: lines at the most, 1 to 1,000.

        Raises:
            InvalidFilter: a value is out of its range.
        """
        wanted = TaskFilter(search=validation.search(text), queue=queue, name=name).checked()
        scope = self._scope("tasks.search_logs", wanted)
        if queue is not None:
            self._require_queue("tasks.search_logs", validation.queue(queue))
        levels = None if level is None else levels_from(level)
        queues = scope.queues if queue is None else frozenset([queue])
        return Query(
            "read",
            visible_tasks.find_log_lines,
            LineFilter(text=text, levels=levels, queues=queues, name=name),
            scope.masker,
            validation.time_span("since", since, 0.0, LONGEST),
            after=validation.id_cursor(after, "log lines"),
            limit=validation.number("limit", limit, 1, MAX_LINES),
        )

    @operation(in_queues=True)
    def counts(self) -> Query[dict[Status, int]]:
        """How many tasks there are of each status. It scans an index: not for each view of a web page."""
        return Query("read", pages.count_tasks, self._actor.queues)

    @operation(needs=Right.VIEW, in_queues=True, rest=rest("GET /tasks/{task_id}/stack", name="show_stack"))
    def stack(self, task_id: int, *, timeout: str | float = 20.0) -> Query[TaskStack]:
        """Where the code of a running task is now, and what its process uses; read from the live process.

        Args:
            task_id: the task's.
            timeout: seconds until its node must have answered, or "1m".

        Raises:
            TaskNotFound: there is no such task.
            TaskNotRunning: it does not run, or a queue client holds it.
            NodeUnreachable: its node does not answer.
            NodeRequestFailed: its process does not answer, or the attempt has just ended.
        """
        scope, requester = self._scope("tasks.stack"), requester_name(self._actor)
        seconds = wait_seconds(timeout)
        steps = _read_stack(scope, validation.task_id(task_id), seconds, requester)
        return QuerySequence(steps, waits=seconds + ANSWER_MARGIN)

    @operation(in_queues=True, rest=rest("POST /tasks/{task_id}/retry", answer="task"))
    def retry(self, task_id: int) -> Query[None]:
        """Let a task run again at once, with all its attempts, after any outcome.

        Raises:
            UniqueKeyTaken: a younger task has its unique key.
        """
        query = self._action(bulk.BulkRetry(), task_id)
        return query.then_ring(ClaimRevoked((task_id,)), TasksAvailable())

    @operation(in_queues=True, rest=rest("POST /tasks/{task_id}/cancel", answer="task"))
    def cancel(self, task_id: int, reason: str = "canceled by hand") -> Query[None]:
        """End a task that has not ended."""
        query = self._action(bulk.BulkCancel(truncate(validation.reason(reason), ERROR_LIMIT)), task_id)
        return query.then_ring(ClaimRevoked((task_id,)))

    @operation(in_queues=True, rest=rest("POST /tasks/{task_id}/bury", answer="task"))
    def bury(self, task_id: int) -> Query[None]:
        """Set aside a task that has not ended: no worker and no queue client gets it until it is kicked or retried."""
        query = self._action(bulk.BulkBury(), task_id)
        return query.then_ring(ClaimRevoked((task_id,)))

    @operation(in_queues=True, rest=rest("POST /tasks/{task_id}/kick", answer="task"))
    def kick(self, task_id: int) -> Query[None]:
        """Make a task pending that is buried, scheduled, or waits for another attempt; its attempts stay counted."""
        return self._action(bulk.BulkKick(), task_id).then_ring(TasksAvailable())

    @operation(in_queues=True, rest=rest("DELETE /tasks/{task_id}", answer="nothing"))
    def delete(self, task_id: int) -> Query[None]:
        """Delete a task and its attempts, in any status."""
        return self._action(bulk.BulkDelete(), task_id).then_ring(ClaimRevoked((task_id,)))

    @operation(in_queues=True)
    def move(self, task_id: int, node: str | None) -> Query[None]:
        """Pin a task to the node of this name, or to none (None). A running one becomes pending.

        Raises:
            NodeNotFound: no node has this name.
        """
        query = self._action(bulk.BulkMove(validation.text_or_none("node", node)), task_id)
        return query.then_ring(ClaimRevoked((task_id,)), TasksAvailable())

    @operation(in_queues=True)
    def move_to_queue(self, task_id: int, queue: str) -> Query[None]:
        """Put a task into another queue. A running one becomes pending.

        Raises:
            UniqueKeyTaken: a task of that queue has its unique key.
        """
        self._require_queue("tasks.move_to_queue", validation.queue(queue))
        query = self._action(bulk.BulkMoveToQueue(queue), task_id)
        return query.then_ring(ClaimRevoked((task_id,)), TasksAvailable((queue,)))

    @operation(in_queues=True, rest=rest("POST /tasks/{task_id}/snooze", answer="task"))
    def snooze(self, task_id: int, duration: str | float) -> Query[None]:
        """Let a task start later. The attempt of a running one ends, and is not counted.

        Args:
            task_id: the task's.
            duration: seconds from now, or "1h".
        """
        query = self._action(bulk.BulkSnooze(validation.seconds("duration", duration)), task_id)
        return query.then_ring(ClaimRevoked((task_id,)))

    @operation(in_queues=True, rest=rest("PATCH /tasks/{task_id}", answer="task"))
    def change(self, task_id: int, *, priority: int | None = None, body: object = UNSET) -> Query[None]:
        """Change the priority or the body of a task that neither runs nor has ended.

        Args:
            task_id: the task's.
            priority: the larger one is claimed first.
            body: any JSON value; of a handler's task, the object of its arguments.

        Raises:
            InvalidTask: a body that cannot be written as JSON, or is too large; or nothing to change.
        """
        rank = None if priority is None else validation.number("priority", priority, *PRIORITY_RANGE)
        action = bulk.BulkChange(rank, None if body is UNSET else json_text("body", body))
        return self._action(action, task_id).then_ring(TasksAvailable())

    def _scope(self, operation_name: str, task_filter: TaskFilter | None = None) -> visible_tasks.TaskScope:
        """The tasks that the actor may see among those of a filter.

        A search in columns that are masked would find out what is masked, so it needs the right to administer.
        """
        wanted = task_filter or TaskFilter()
        visible_tasks.require_readable(self._actor, self._masker, operation_name, wanted)
        return visible_tasks.TaskScope(wanted, self._actor.queues, self._masker)

    def _action(self, action: bulk.TaskAction, task_id: int) -> Query[None]:
        scope = self._scope(f"tasks.{bulk.action_tag(action)}")
        number = validation.task_id(task_id)

        def act(connection: Connection) -> None:
            act_on_task(connection, number, action, only=scope.conditions(connection))

        return Query("run", act).acting_on("task", number, task_state, number)


def _read_stack(scope: visible_tasks.TaskScope, task_id: int, seconds: float, requester: str) -> Steps[TaskStack]:
    yield Query("read", visible_tasks.get_visible, scope, task_id)
    node, pid = yield Query("read", find_task_process, task_id)
    found: TaskStack = yield from request_and_wait(node, StackArguments(task_id, pid), seconds, TaskStack, requester)
    return found
