"""Tasks: enqueue, find, show and change them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Response

from peerd.operate.client import AioClient
from peerd.web.dependencies import AioClientDependency
from peerd.web.fields import IdempotencyKey, TaskId
from peerd.web.problems import documented
from peerd.web.routes.task_models import (
    Change,
    EnqueueBody,
    EnqueuedTask,
    EnqueueManyBody,
    Move,
    Reason,
    SnoozeDuration,
    TaskDetail,
    TaskPageView,
    TaskQuery,
    TaskView,
)

router = APIRouter(prefix="/tasks", tags=["tasks"])
FIND_ERRORS = documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
ACTION_ERRORS = documented(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)


@router.get("", responses=documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY))
async def list_tasks(client: AioClientDependency, wanted: Annotated[TaskQuery, Query()]) -> TaskPageView:
    """A page of tasks: ended ones, the latest first; scheduled ones, the soonest first; else the newest first."""
    page = await client.tasks.page(**wanted.model_dump(), bodies=False)
    names = await _node_names(client)
    return TaskPageView(items=[TaskView.of(task, names) for task in page.items], next=page.next, examined=page.examined)


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    responses=documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
    | {200: {"model": EnqueuedTask, "description": "A task has this unique key already."}},
)
async def enqueue(
    body: EnqueueBody, client: AioClientDependency, response: Response, idempotency_key: IdempotencyKey = None
) -> EnqueuedTask:
    """Enqueue a task."""
    if idempotency_key is None:
        job = await client.enqueue(body.queue, **body.options())
    else:
        [job] = await client.enqueue_batch([(body.queue, body.options())], idempotency_key=idempotency_key)
    if not job.created:
        response.status_code = HTTPStatus.OK
    return EnqueuedTask(id=str(job.id), created=job.created)


@router.post(
    "/batch",
    status_code=HTTPStatus.CREATED,
    responses=documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY),
)
async def enqueue_batch(
    body: EnqueueManyBody, client: AioClientDependency, idempotency_key: IdempotencyKey = None
) -> list[EnqueuedTask]:
    """Enqueue tasks in one transaction, all or none; in the order given."""
    tasks = [(task.queue, task.options()) for task in body.tasks]
    jobs = await client.enqueue_batch(tasks, idempotency_key=idempotency_key)
    return [EnqueuedTask(id=str(job.id), created=job.created) for job in jobs]


@router.get("/{task_id}", responses=FIND_ERRORS)
async def show(task_id: TaskId, client: AioClientDependency) -> TaskDetail:
    """A task in full, with its attempts that did not succeed."""
    return await _detail(client, task_id)


@router.patch("/{task_id}", responses=ACTION_ERRORS)
async def change(task_id: TaskId, body: Change, client: AioClientDependency) -> TaskDetail:
    """Change the priority or the body of a task that neither runs nor has ended."""
    given = {name: getattr(body, name) for name in body.model_fields_set}
    await client.tasks.change(task_id, **given)
    return await _detail(client, task_id)


@router.delete("/{task_id}", status_code=HTTPStatus.NO_CONTENT, responses=ACTION_ERRORS, response_class=Response)
async def delete(task_id: TaskId, client: AioClientDependency) -> None:
    """Delete a task and its attempts."""
    await client.tasks.delete(task_id)


@router.post("/{task_id}/retry", responses=ACTION_ERRORS)
async def retry(task_id: TaskId, client: AioClientDependency) -> TaskDetail:
    """Let a task run again at once, with all its attempts."""
    await client.tasks.retry(task_id)
    return await _detail(client, task_id)


@router.post("/{task_id}/cancel", responses=ACTION_ERRORS)
async def cancel(task_id: TaskId, client: AioClientDependency, body: Reason | None = None) -> TaskDetail:
    """End a task that has not ended; a running one too."""
    await client.tasks.cancel(task_id, (body or Reason()).reason)
    return await _detail(client, task_id)


@router.post("/{task_id}/bury", responses=ACTION_ERRORS)
async def bury(task_id: TaskId, client: AioClientDependency) -> TaskDetail:
    """Set aside a task that has not ended."""
    await client.tasks.bury(task_id)
    return await _detail(client, task_id)


@router.post("/{task_id}/kick", responses=ACTION_ERRORS)
async def kick(task_id: TaskId, client: AioClientDependency) -> TaskDetail:
    """Make a task pending that is buried, scheduled, or waits for another attempt."""
    await client.tasks.kick(task_id)
    return await _detail(client, task_id)


@router.post("/{task_id}/snooze", responses=ACTION_ERRORS)
async def snooze(task_id: TaskId, body: SnoozeDuration, client: AioClientDependency) -> TaskDetail:
    """Let a task start later."""
    await client.tasks.snooze(task_id, body.duration)
    return await _detail(client, task_id)


@router.post("/{task_id}/move", responses=ACTION_ERRORS)
async def move(task_id: TaskId, body: Move, client: AioClientDependency) -> TaskDetail:
    """Pin a task to a node, or to none, or put it into another queue. A running one becomes pending."""
    if body.queue is not None:
        await client.tasks.move_to_queue(task_id, body.queue)
    if body.queue is None or "node" in body.model_fields_set:
        await client.tasks.move(task_id, body.node)
    return await _detail(client, task_id)


async def _detail(client: AioClient, task_id: int) -> TaskDetail:
    task = await client.tasks.get(task_id)
    attempts = await client.tasks.attempts(task_id)
    names = await _node_names(client)
    return TaskDetail.of_task(task, attempts, names)


async def _node_names(client: AioClient) -> dict[int, str]:
    return {node.id: node.name for node in await client.nodes.list()}
