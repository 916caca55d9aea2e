"""Bodies of requests about tasks, and views of tasks."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import Annotated, Any, Literal, Self, cast

from pydantic import AwareDatetime, BaseModel, Field

from peerd.domain.column_condition import MAX_TEXT, MOST_CONDITIONS
from peerd.domain.lifecycle import Status
from peerd.domain.task import NAME_LIMIT, PRIORITY_RANGE, QUEUE_NAME, Attempt, Task
from peerd.operate.request import EnqueueOptions
from peerd.operate.validation import MAX_CURSOR
from peerd.web.fields import WHOLE, Base64, Duration, RequestBody

MOST_ENQUEUED = 1_000
"""Tasks of one request."""
MAX_PAGE = 1_000

Queue = Annotated[str, Field(pattern=f"^{QUEUE_NAME.pattern}$", max_length=NAME_LIMIT, examples=["video"])]
ShortText = Annotated[str, Field(max_length=NAME_LIMIT)]
Priority = Annotated[int, Field(strict=True, ge=PRIORITY_RANGE[0], le=PRIORITY_RANGE[1], examples=[20]), WHOLE]


class TaskQuery(RequestBody):
    """Which tasks a page has: those that meet all of it."""

    queue: ShortText | None = Field(None, examples=["video"])
    name: ShortText | None = None
    status: Status | None = None
    node: ShortText | None = Field(None, description="Pinned to it, or held by it, now or last.")
    search: str | None = Field(None, min_length=1, max_length=MAX_TEXT, description="A part of the body or the error.")
    where: list[str] = Field(
        default_factory=list, max_length=MOST_CONDITIONS, description="A column compared.", examples=[["priority>=20"]]
    )
    after: str | None = Field(None, max_length=MAX_CURSOR, description="`next` of the page before.")
    limit: int = Field(50, ge=1, le=MAX_PAGE)


class EnqueueBody(RequestBody):
    """A task to enqueue. Of `body`, `text` and `bytes` at most one; of `_at` and `_in` of a time at most one."""

    queue: Queue
    name: ShortText | None = Field(None, description="The handler's name.", examples=["transcode"])
    body: Any = Field(None, description="Any JSON: the handler's arguments.", examples=[{"source": "a.mp4"}])
    text: str | None = None
    bytes: Base64 | None = None
    priority: Priority | None = None
    start_at: AwareDatetime | None = Field(None, description="Not before this time.")
    start_in: Duration | None = None
    finish_at: AwareDatetime | None = Field(None, description="Dropped if not started, and canceled if running, then.")
    finish_in: Duration | None = None
    node: ShortText | None = Field(None, description="The only node that may run it.", examples=["video-2"])
    max_attempts: Annotated[int, Field(strict=True, ge=1, le=2**31 - 1), WHOLE] | None = None
    timeout: Duration | None = None
    unique: ShortText | None = Field(None, description="At most one unfinished task of the queue has this key.")
    unique_for: Duration | Literal["unfinished", "forever"] | None = None
    limit_key: ShortText | None = None
    trace_context: Annotated[str, Field(max_length=512)] | None = None

    def options(self) -> EnqueueOptions:
        """The options of the client."""
        given: Any = {name: getattr(self, name) for name in self.model_fields_set - {"queue"}}
        if given.get("bytes") is not None:
            given["bytes"] = base64.b64decode(given["bytes"])
        return cast("EnqueueOptions", given)


class EnqueuedTask(BaseModel):
    """A task that was enqueued, or that has its unique key already."""

    id: str = Field(examples=["17"])
    created: bool


class EnqueueManyBody(RequestBody):
    """Tasks to enqueue in one transaction."""

    tasks: list[EnqueueBody] = Field(min_length=1, max_length=MOST_ENQUEUED)


class TaskView(BaseModel):
    """A task. Its body is `body` if it is JSON, else `text`, or `bytes` in base64."""

    id: str = Field(examples=["17"])
    queue: str = Field(examples=["video"])
    name: str = Field(examples=["transcode"])
    status: Status
    priority: int
    attempts: int
    max_attempts: int | None
    crashes: int
    node: str | None = Field(description="The only node that may run it.")
    worker_node: str | None = Field(description="The node that holds it, or held it last.")
    process_id: str | None
    start_at: datetime | None
    finish_at: datetime | None
    timeout: float | None
    unique_key: str | None
    limit_key: str | None
    lease: str
    worker_started_at: datetime | None
    checked_at: datetime | None
    progress: float | None
    progress_note: str | None
    error: str | None
    finished_at: datetime | None
    trace_context: str | None
    created_at: datetime
    updated_at: datetime
    deadline_at: datetime | None
    ttr: int | None
    delay: int | None
    reserves: int | None
    timeouts: int | None
    releases: int | None
    buries: int | None
    kicks: int | None
    bulk_id: str | None = Field(description="The last bulk action on it.")

    @classmethod
    def of(cls, task: Task, names: dict[int, str], **more: Any) -> Self:
        """The view of a row."""
        row: dict[str, Any] = {field: getattr(task, field, None) for field in cls.model_fields}
        row |= {"id": str(task.id), "lease": str(task.lease)}
        row |= {name: None if row[name] is None else str(row[name]) for name in ("process_id", "bulk_id")}
        row["node"] = _name_of(task.node_id, names)
        row["worker_node"] = _name_of(task.worker_node_id, names)
        return cls(**row | more)


class AttemptView(BaseModel):
    """An attempt that did not succeed."""

    number: int
    lease: str
    node: str | None
    process_id: str | None
    started_at: datetime | None
    ended_at: datetime
    outcome: str
    error: str | None
    traceback: str | None
    cause: str | None

    @classmethod
    def of(cls, attempt: Attempt, names: dict[int, str]) -> Self:
        """The view of a row."""
        row: dict[str, Any] = {field: getattr(attempt, field, None) for field in cls.model_fields}
        row["lease"] = str(attempt.lease)
        row["process_id"] = None if attempt.process_id is None else str(attempt.process_id)
        row["node"] = _name_of(attempt.node_id, names)
        return cls(**row)


class TaskDetail(TaskView):
    """A task in full, with its attempts that did not succeed."""

    body: Any = Field(examples=[{"source": "a.mp4"}])
    text: str | None
    bytes: str | None
    result: Any
    failed_attempts: list[AttemptView]

    @classmethod
    def of_task(cls, task: Task, attempts: list[Attempt], names: dict[int, str]) -> Self:
        """The view of a row and its attempts."""
        is_text = task.body is not None and task.json is None and task.body.strip() != "null"
        return cls.of(
            task,
            names,
            body=None if task.body is None else task.json,
            text=task.body if is_text else None,
            bytes=None if task.body_bytes is None else base64.b64encode(task.body_bytes).decode(),
            result=_decode_json(task.result),
            failed_attempts=[AttemptView.of(attempt, names) for attempt in attempts],
        )


class TaskPageView(BaseModel):
    """A page of tasks."""

    items: list[TaskView]
    next: str | None = Field(description="`after` of the next page; null on the last one.")
    examined: int = Field(description="Tasks that were compared with the filter.")


class Reason(RequestBody):
    """Why a task is canceled."""

    reason: str = Field("canceled by hand", max_length=2_000)


class SnoozeDuration(RequestBody):
    """How long a task waits."""

    duration: Duration


class Move(RequestBody):
    """Where a task goes: to a node, to any (null), or into a queue."""

    node: ShortText | None = Field(None, examples=["video-2"])
    queue: Queue | None = None


class Change(RequestBody):
    """What of a task changes."""

    priority: Priority | None = None
    body: Any = None


def _decode_json(text: str | None) -> Any:
    """The value of a JSON text; the text itself where SQL by hand has written something else."""
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return text


def _name_of(node_id: int | None, names: dict[int, str]) -> str | None:
    return None if node_id is None else names.get(node_id, f"node {node_id}")
