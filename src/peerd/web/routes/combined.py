"""Requests of REST that combine operations of the client, or have other arguments than one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final, Unpack

import msgspec
from msgspec import UNSET, UnsetType

from peerd.domain import bulk
from peerd.domain.errors import NodeRequestFailed, NodeRequestUnfinished, NodeUnreachable
from peerd.operate import validation
from peerd.operate.client import AioClient
from peerd.operate.nodes import LiveNode
from peerd.operate.request import EnqueueOptions, json_text
from peerd.operate.rest import Rest, rest
from peerd.operate.task_filter import TaskFilter
from peerd.store.enqueue import Enqueued
from peerd.store.schedule_runs import ScheduleRun
from peerd.web.views import NodeInFull, TaskInFull

STATE_TIMEOUT: Final = 12.0
"""Seconds: without the doorbell a node looks for requests every ten."""
OF_ALL_QUEUES: Final = "the live state is about all queues, and this actor is restricted to some"


class QueueOptions(EnqueueOptions):
    """A task in a queue, and its options."""

    queue: str


class SnoozeAction(msgspec.Struct, frozen=True, tag="snooze", forbid_unknown_fields=True):
    """Let tasks start later: in so many seconds, or ``1h``."""

    duration: str | float

    def __post_init__(self) -> None:
        validation.seconds("duration", self.duration)


class ChangeAction(msgspec.Struct, frozen=True, tag="change", forbid_unknown_fields=True):
    """Change the priority, or the body, which is any JSON value."""

    priority: int | None = None
    body: Any = UNSET


Action = (
    bulk.BulkRetry
    | bulk.BulkCancel
    | bulk.BulkDelete
    | bulk.BulkBury
    | bulk.BulkKick
    | bulk.BulkMove
    | bulk.BulkMoveToQueue
    | SnoozeAction
    | ChangeAction
)


async def enqueue(
    client: AioClient, queue: str, *, idempotency_key: str | None = None, **options: Unpack[EnqueueOptions]
) -> Enqueued:
    """Enqueue a task."""
    job = await client.enqueue(queue, idempotency_key=idempotency_key, **options)
    return Enqueued(job.id, job.created)


async def enqueue_batch(
    client: AioClient, tasks: list[QueueOptions], *, idempotency_key: str | None = None
) -> list[Enqueued]:
    """Enqueue tasks in one transaction, all or none; in the order given."""
    given: Any = [(task.pop("queue"), task) for task in tasks]  # type: ignore[misc]  # the rest are its options
    jobs = await client.enqueue_batch(given, idempotency_key=idempotency_key)
    return [Enqueued(job.id, job.created) for job in jobs]


async def move(
    client: AioClient, task_id: int, *, node: str | UnsetType | None = UNSET, queue: str | None = None
) -> None:
    """Pin a task to a node, or to none, or put it into another queue. A running one becomes pending."""
    if queue is not None:
        await client.tasks.move_to_queue(task_id, queue)
    if queue is None or node is not UNSET:
        await client.tasks.move(task_id, None if node is UNSET else node)


async def task_in_full(client: AioClient, task_id: int) -> TaskInFull:
    """A task, with its attempts that did not succeed."""
    task = await client.tasks.get(task_id)
    return TaskInFull(**msgspec.structs.asdict(task), failed_attempts=await client.tasks.attempts(task_id))


async def create_bulk(
    client: AioClient,
    action: Action,
    filter: TaskFilter | None = None,  # noqa: A002 - a name of the API
    *,
    all: bool = False,  # noqa: A002 - as above
    dry_run: bool = False,
    digest: str | None = None,
    limit: int | None = None,
) -> bulk.BulkAction | bulk.BulkPreview:
    """Begin one action on all tasks of a filter, or with `dry_run` see which they are."""
    wanted = _of_client(action)
    if dry_run:
        return await client.bulk.preview(wanted, filter, all_tasks=all)
    return await client.bulk.create(wanted, filter, digest=digest, most=limit, all_tasks=all)


def _of_client(action: Action) -> bulk.TaskAction:
    match action:
        case SnoozeAction():
            return bulk.BulkSnooze(validation.seconds("duration", action.duration))
        case ChangeAction():
            body = None if action.body is UNSET else json_text("body", action.body)
            return bulk.BulkChange(action.priority, body)
        case _:
            return action


async def run_schedule(client: AioClient, name: str, args: list[Any] | dict[str, Any] | None = None) -> ScheduleRun:
    """Request a run now, also of a disabled schedule; a node takes it within a second."""
    if isinstance(args, dict):
        return await client.schedules.run(name, **args)
    return await client.schedules.run(name, *(args or ()))


async def show_node(client: AioClient, name: str) -> NodeInFull:
    """A node with the live state of its processes, for which its master is asked; not for an actor of some queues."""
    node = msgspec.structs.asdict(await client.nodes.get(name))
    live, problem = (None, OF_ALL_QUEUES) if client.actor.queues is not None else await _ask(client, name)
    return NodeInFull(**node, live=live, problem=problem)


async def _ask(client: AioClient, name: str) -> tuple[LiveNode | None, str | None]:
    """The live state of a node, or why it is not known."""
    try:
        return await client.nodes.state(name, timeout=STATE_TIMEOUT), None
    except (NodeUnreachable, NodeRequestFailed, NodeRequestUnfinished) as error:
        return None, str(error)


COMBINED: Final[tuple[tuple[Rest, Callable[..., Awaitable[Any]]], ...]] = (
    (rest("POST /tasks", name="enqueue", status=HTTPStatus.CREATED), enqueue),
    (rest("POST /tasks/batch", name="enqueue_batch", status=HTTPStatus.CREATED), enqueue_batch),
    (rest("GET /tasks/{task_id}", name="show"), task_in_full),
    (rest("POST /tasks/{task_id}/move", name="move", answer="task"), move),
    (rest("POST /bulk", name="create", status=HTTPStatus.ACCEPTED), create_bulk),
    (rest("POST /schedules/{schedule}/run", name="run", status=HTTPStatus.ACCEPTED), run_schedule),
    (rest("GET /nodes/{node}", name="show_node"), show_node),
)
