"""Log lines of tasks: a page of them, and a stream."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, Field

from peerd.domain.log_line import TaskLogLine
from peerd.domain.task import NAME_LIMIT
from peerd.operate.tasks import MAX_LINES
from peerd.web.dependencies import AioClientDependency, may_still_view, scope_of
from peerd.web.fields import Duration, RequestBody, TaskId
from peerd.web.log_streams import LogStreams, view_of
from peerd.web.problems import documented

router = APIRouter(tags=["tasks"])
ERRORS = documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
CURSOR = r"^\d{1,18}-\d{1,18}$"
EVENT_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "Events `line`, then `end`.", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}

FilterText = Annotated[str | None, Field(min_length=1, max_length=NAME_LIMIT)]
LineLevel = Literal["debug", "info", "warning", "error", "critical"]
Cursor = Annotated[str | None, Field(pattern=CURSOR, description="Lines after this one.", examples=["3-17"])]
LeastLevel = Annotated[LineLevel | None, Field(description="Lines of this level or a higher one.")]


class LogQuery(RequestBody):
    """Which lines a page has."""

    after: Cursor = None
    limit: int = Field(200, ge=1, le=MAX_LINES)
    attempt: int | None = Field(None, ge=1, le=2**31 - 1, description="Of this attempt only, from 1.")
    level: LeastLevel = None


class LogStreamQuery(RequestBody):
    """Which lines a stream has."""

    after: Cursor = None
    level: LeastLevel = None


class LogLineView(BaseModel):
    """A line that a handler has logged. `sequence` counts the lines of a claim; missing numbers were not kept."""

    cursor: str = Field(examples=["3-17"])
    lease: str
    sequence: int
    attempt: int
    at: datetime
    level: str
    logger: str
    message: str
    fields: dict[str, Any] | None

    @classmethod
    def of(cls, line: TaskLogLine) -> LogLineView:
        """The view of a line."""
        return cls.model_validate(view_of(line))


class LogPageView(BaseModel):
    """Log lines of a task, in their order. `next` continues after them, also for lines that are to come."""

    items: list[LogLineView]
    next: str | None
    has_more: bool
    ended: bool = Field(description="The task has ended, and no further line is awaited.")


class SearchQuery(RequestBody):
    """Which lines a search finds."""

    text: str = Field(min_length=1, description="A part of the message or the fields, in any case.", examples=["disk"])
    since: Duration = Field("1d", description="Only of so many last seconds.", examples=["1d"])
    queue: FilterText = None
    name: FilterText = None
    level: LeastLevel = None
    after: str | None = Field(None, max_length=19, pattern="^[0-9]+$", description="`next` of an earlier answer.")
    limit: int = Field(100, ge=1, le=MAX_LINES)


class FoundLineView(BaseModel):
    """A line, and its task; the queue and name are null where the task was deleted."""

    task_id: str = Field(examples=["17"])
    queue: str | None
    name: str | None
    line: LogLineView


class LineSearchView(BaseModel):
    """The newest lines. `next` goes on where the search has ended, because it took its time, or found so many."""

    items: list[FoundLineView]
    searched_to: datetime | None = Field(description="Null: all of the time was searched.")
    next: str | None


@router.get("/logs", responses=ERRORS)
async def search(client: AioClientDependency, wanted: Annotated[SearchQuery, Query()]) -> LineSearchView:
    """The newest log lines of all tasks with a text."""
    found = await client.tasks.search_logs(**wanted.model_dump())
    items = [
        FoundLineView(task_id=str(one.task_id), queue=one.queue, name=one.name, line=LogLineView.of(one.line))
        for one in found.items
    ]
    return LineSearchView(items=items, searched_to=found.searched_to, next=found.next)


@router.get("/tasks/{task_id}/logs", responses=ERRORS)
async def logs(task_id: TaskId, client: AioClientDependency, wanted: Annotated[LogQuery, Query()]) -> LogPageView:
    """What the handlers of a task have logged: a page of lines, by claim and number."""
    page = await client.tasks.logs(task_id, **wanted.model_dump())
    items = [LogLineView.of(line) for line in page.items]
    return LogPageView(items=items, next=page.next, has_more=page.has_more, ended=page.ended)


@router.get("/tasks/{task_id}/logs/stream", responses=ERRORS | EVENT_STREAM, response_class=Response)
async def stream(
    task_id: TaskId,
    request: Request,
    client: AioClientDependency,
    wanted: Annotated[LogStreamQuery, Query()],
    last_event_id: Annotated[str | None, Header(pattern=CURSOR)] = None,
) -> Response:
    """The log lines of a task as server-sent events, until it has ended. `Last-Event-ID` continues after that line."""
    streams: LogStreams = request.app.state.peerd_log_streams
    process = getattr(request.state, "peerd", None)
    after, is_allowed = last_event_id or wanted.after, partial(may_still_view, request, scope_of(client))
    return await streams.open(client, task_id, after, wanted.level, process, is_allowed)
