"""The log lines of a task as a stream."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import Field

from peerd.web.dependencies import AioClientDependency, may_still_view
from peerd.web.fields import RequestBody, TaskId
from peerd.web.problems import documented
from peerd.web.streams.hub import EventStream, StreamHub
from peerd.web.streams.log_lines import watch_lines
from peerd.web_server.app_state import ring_subscriptions

router = APIRouter(tags=["tasks"])
ERRORS = documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
CURSOR = r"^\d{1,18}-\d{1,18}$"
EVENT_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "Events `line`, then `end`.", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}

LineLevel = Literal["debug", "info", "warning", "error", "critical"]
Cursor = Annotated[str | None, Field(pattern=CURSOR, description="Lines after this one.", examples=["3-17"])]
LeastLevel = Annotated[LineLevel | None, Field(description="Lines of this level or a higher one.")]


class LogStreamQuery(RequestBody):
    """Which lines a stream has."""

    after: Cursor = None
    level: LeastLevel = None


@router.get("/tasks/{task_id}/logs/stream", responses=ERRORS | EVENT_STREAM, response_class=Response)
async def stream(
    task_id: TaskId,
    request: Request,
    client: AioClientDependency,
    wanted: Annotated[LogStreamQuery, Query()],
    last_event_id: Annotated[str | None, Header(pattern=CURSOR)] = None,
) -> Response:
    """The log lines of a task as server-sent events, until it has ended. `Last-Event-ID` continues after that line."""
    hub: StreamHub = request.app.state.peerd_log_streams
    hub.attach(getattr(request.state, "peerd", None), ring_subscriptions(request.state))
    viewer = await watch_lines(hub, client, task_id, last_event_id or wanted.after, wanted.level)
    return EventStream(hub, viewer, partial(may_still_view, request))
