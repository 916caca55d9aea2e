"""One task: what it is, what has happened to it, where it runs, and what its handler has logged."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from peerd.domain.access import Right
from peerd.domain.bulk import BulkAction
from peerd.domain.errors import BulkActionNotFound, NodeRequestUnfinished, NodeUnreachable, TaskNotRunning
from peerd.domain.lifecycle import Status
from peerd.domain.task import Attempt, Task
from peerd.web.dependencies import find_access
from peerd.web.pages.addresses import Subject, UrlQuery
from peerd.web.pages.formats import json_tree
from peerd.web.pages.headers import PAGE_HEADERS
from peerd.web.pages.previews import Preview, find_previews, preview_response
from peerd.web.pages.rendering import PageRequest
from peerd.web.pages.task_actions import allowed_verbs

LOG_LINES: Final = 200
TREE_LIMIT: Final = 200_000
"""Characters of a body or a result that is parsed for its page."""
MOST_KEY: Final = 1_000
"""Characters of a key that is in an address."""
STACK_TIMEOUT: Final = 10.0
"""Seconds."""
PAST: Final = {
    "retry": "retried",
    "cancel": "canceled",
    "snooze": "snoozed",
    "move": "moved",
    "move_to_queue": "moved",
    "change": "changed",
    "bury": "buried",
    "kick": "kicked",
}
"""What a bulk action has done to a task."""


class TimelineEntry(msgspec.Struct, frozen=True):
    """Something that happened to the task."""

    at: datetime
    text: str
    node: str | None = None
    detail: str | None = None


class Value(msgspec.Struct, frozen=True):
    """A body or a result on the page.

    Attributes:
        tree: of JSON.
        text: of what is no JSON, or too large: its beginning.
        size: its length in bytes.
    """

    label: str
    part: str
    tree: Any = None
    text: str | None = None
    size: int = 0


async def show_task(page: PageRequest) -> Response:
    """The page of a task."""
    task_id: int = page.request.path_params["key"]
    client = page.client
    task = await page.read(("task", task_id), lambda: client.tasks.get(task_id))
    attempts = await page.read(("attempts", task_id), lambda: client.tasks.attempts(task_id))
    logs = await page.read(("logs", task_id), lambda: client.tasks.last_logs(task_id, limit=LOG_LINES))
    nodes = {node.id: node for node in await page.read("nodes", client.nodes.list)}
    names = {number: node.name for number, node in nodes.items()}
    bulk = await _last_bulk(page, task)
    has_ended = task.status in {Status.DONE, Status.DEAD, Status.CANCELED}
    return page.render(
        "task.html",
        f"Task {task_id}",
        task=task,
        bulk=bulk,
        node=_name(task.node_id, names),
        node_state=nodes[task.node_id].state if task.node_id in nodes else None,
        worker=_name(task.worker_node_id, names),
        actions=page.actions.of(Subject.TASK, page.actor, *allowed_verbs(task)),
        values=[_value("Body", "body", task.body, task.body_bytes), _value("Result", "result", task.result, None)],
        previews=previews_of(page, task),
        attempts=[(attempt, _name(attempt.node_id, names)) for attempt in attempts],
        timeline=timeline_of(task, attempts, names, bulk),
        logs=logs,
        follow=None if has_ended else _follow_address(task_id, logs),
        may_read_stack=task.status is Status.WORKING and page.actor.may(Right.VIEW),
        same_key={name: _same_key(name, getattr(task, name)) for name in ("unique_key", "limit_key")},
        live=f"task={task_id}&type=task",
    )


async def download_value(part: str, page: PageRequest) -> Response:
    """A body or a result, whole, as a file."""
    task = await page.client.tasks.get(page.request.path_params["key"])
    text = {"body": task.body, "result": task.result}[part]
    content = task.body_bytes if part == "body" and task.body_bytes is not None else (text or "").encode()
    kind = "bin" if part == "body" and task.body_bytes is not None else "json" if _is_json(text) else "txt"
    headers = {**PAGE_HEADERS, "content-disposition": f'attachment; filename="task-{task.id}-{part}.{kind}"'}
    return Response(content, headers=headers, media_type="application/octet-stream")


def previews_of(page: PageRequest, task: Task) -> list[Preview]:
    """The files that its result names, and that the site may show."""
    folders = find_access(page.request).settings_of(page.request.scope).preview_folders
    return find_previews(task.result, folders) if folders else []


async def show_preview(page: PageRequest) -> Response:
    """An image or a video."""
    number: int = page.request.path_params["number"]
    previews = previews_of(page, await page.client.tasks.get(page.request.path_params["key"]))
    if number >= len(previews):
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return preview_response(previews[number])


async def show_stack(page: PageRequest) -> Response:
    """Where the code of a running task is now."""
    task_id: int = page.request.path_params["key"]
    stack, problem = None, None
    try:
        stack = await page.client.tasks.stack(task_id, timeout=STACK_TIMEOUT)
    except (TaskNotRunning, NodeUnreachable, NodeRequestUnfinished) as error:
        problem = str(error)
    return page.render("stack.html", f"Stack of task {task_id}", task_id=task_id, stack=stack, problem=problem)


async def _last_bulk(page: PageRequest, task: Task) -> BulkAction | None:
    """The last bulk action on a task; None if none was, or its row was purged."""
    if (bulk_id := task.bulk_id) is None:
        return None
    with suppress(BulkActionNotFound):
        return await page.read(("bulk", bulk_id), lambda: page.client.bulk.get(bulk_id))
    return None


def timeline_of(
    task: Task, attempts: list[Attempt], names: dict[int, str], bulk: BulkAction | None
) -> list[TimelineEntry]:
    """What is known of a task's life, the oldest first.

    The table has a row for each attempt that did not succeed; of the latest one, the task itself says more. Of bulk
    actions the last one is known.
    """
    entries = [TimelineEntry(task.created_at, "enqueued")]
    if bulk is not None:
        done = f"{PAST.get(bulk.action_name, bulk.action_name)} by {bulk.created_by} (bulk action {bulk.id})"
        entries.append(TimelineEntry(bulk.started_at or bulk.created_at, done))
    if task.start_at is not None:
        entries.append(TimelineEntry(task.start_at, "due"))
    for attempt in attempts:
        node = _name(attempt.node_id, names)
        which = f"attempt {attempt.number}" if attempt.number else "attempt that does not count:"
        if attempt.started_at is not None:
            entries.append(TimelineEntry(attempt.started_at, f"{which} claimed", node))
        detail = attempt.cause or attempt.error
        entries.append(TimelineEntry(attempt.ended_at, f"{which} ended: {attempt.outcome}", node, detail))
    if task.worker_started_at is not None and not any(one.started_at == task.worker_started_at for one in attempts):
        node = _name(task.worker_node_id, names)
        entries.append(TimelineEntry(task.worker_started_at, f"attempt {max(1, task.attempts_made)} claimed", node))
    if task.finished_at is not None:
        entries.append(TimelineEntry(task.finished_at, f"ended: {task.status}"))
    return sorted(entries, key=lambda entry: entry.at.replace(microsecond=0))  # within a second, by cause


def _same_key(name: str, key: str | None) -> str | None:
    """The tasks with the same key; none for a key that no API lets in."""
    if key is None or len(key) > MOST_KEY:
        return None
    return UrlQuery((("where", f"{name}={key}"),)).address("/tasks")


def _follow_address(task_id: int, logs: Any) -> str:
    after = "" if not logs.items else f"?after={logs.items[-1].lease}-{logs.items[-1].sequence}"
    return f"/api/v1/tasks/{task_id}/logs/stream{after}"


def _value(label: str, part: str, text: str | None, octets: bytes | None) -> Value | None:
    if octets is not None:
        return Value(label, part, text=repr(octets[:500])[2:-1], size=len(octets))
    if text is None:
        return None
    size = len(text.encode())
    if len(text) <= TREE_LIMIT and _is_json(text):
        return Value(label, part, tree=json_tree(json.loads(text), part), size=size)
    return Value(label, part, text=text[:2_000], size=size)


def _is_json(text: str | None) -> bool:
    try:
        json.loads(text or "")
    except (ValueError, RecursionError):
        return False
    return True


def _name(node_id: int | None, names: dict[int, str]) -> str | None:
    return None if node_id is None else names.get(node_id, f"node {node_id}")
