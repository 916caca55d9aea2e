"""Events as a stream: changes of tasks, queues, nodes and alerts, as they are seen."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import Field

from peerd.domain.access import Right
from peerd.domain.errors import NotPermitted
from peerd.domain.lifecycle import Status
from peerd.web.dependencies import AioClientDependency, may_still_view
from peerd.web.fields import MAX_ID, Queue, RequestBody
from peerd.web.problems import documented, problem_response
from peerd.web.streams.events import EventFilter, watch_events
from peerd.web.streams.hub import EventStream, StreamHub, TooManyViewers
from peerd.web.streams.states import EventKind
from peerd.web_server.app_state import ring_subscriptions

router = APIRouter(prefix="/events", tags=["events"])
RETRY_AFTER: Final = "10"
"""Seconds."""
MAX_TASKS: Final = 100
MAX_QUEUES: Final = 100
LastEventId = Annotated[
    str | None,
    Header(max_length=100, pattern="^[!-~]*$", description="The id of the last event that was received before."),
]


class EventQuery(RequestBody):
    """Which events are sent; without a parameter, all."""

    type: list[EventKind] = Field(default_factory=list, max_length=len(EventKind), examples=[["task"]])
    task: list[Annotated[int, Field(ge=1, le=MAX_ID)]] = Field(
        default_factory=list, max_length=MAX_TASKS, description="Of tasks: these.", examples=[[17]]
    )
    queue: list[Queue] = Field(
        default_factory=list, max_length=MAX_QUEUES, description="Of tasks, queues and alerts: these."
    )
    status: list[Status] = Field(
        default_factory=list,
        max_length=len(Status),
        description="Of tasks: those of these statuses, and the change that leads out of them.",
    )

    def to_filter(self) -> EventFilter:
        """The filter of the query, as the hub has it."""
        kinds = frozenset(self.type or EventKind)
        return EventFilter(kinds, frozenset(map(str, self.task)), frozenset(self.queue), frozenset(self.status))


@router.get(
    "",
    response_class=Response,
    responses=documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
    | {200: {"description": "Events until the viewer leaves.", "content": {"text/event-stream": {}}}},
)
async def stream_events(
    request: Request,
    client: AioClientDependency,
    wanted: Annotated[EventQuery, Query()],
    last_event_id: LastEventId = None,
) -> Response:
    """Events of tasks, queues, nodes and alerts, as Server-Sent Events: first the present state, then each change."""
    if not client.actor.may(Right.VIEW):
        raise NotPermitted(client.actor.name, "events", f"it needs the right {Right.VIEW}")
    hub: StreamHub = request.app.state.peerd_events
    hub.attach(getattr(request.state, "peerd", None), ring_subscriptions(request.state))
    try:
        viewer = await watch_events(hub, client, wanted.to_filter(), last_event_id)
    except TooManyViewers:
        most = f"this process has {hub.max_viewers} streams, or half of them are of one actor, or it stops"
        detail = f"{most}; ask again, or read pages instead"
        headers = {"retry-after": RETRY_AFTER}
        return problem_response(HTTPStatus.SERVICE_UNAVAILABLE, "TooManyViewers", detail, headers=headers)
    return EventStream(hub, viewer, partial(may_still_view, request))
