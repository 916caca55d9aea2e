"""Queues: their state; pause, resume and kick them."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Self

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from peerd.domain.lifecycle import Status
from peerd.operate.queues import MOST_KICKED
from peerd.store.queue_states import QueueState
from peerd.web.dependencies import AioClientDependency
from peerd.web.fields import WHOLE, Duration, QueueName, RequestBody
from peerd.web.problems import documented
from peerd.web.routes.statistics_models import QueueWaitView

router = APIRouter(prefix="/queues", tags=["queues"])
ERRORS = documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)


class QueueView(BaseModel):
    """A queue, and how many tasks of each status it has."""

    name: str = Field(examples=["video"])
    known: bool = Field(description="A worker process has served it, or it was paused.")
    paused: bool
    paused_until: datetime | None
    counts: dict[Status, int] = Field(
        description="Tasks of each status, of ended ones among the latest 10,000.",
        examples=[{"pending": 12, "working": 3}],
    )
    at_least: list[Status] = Field(description="Statuses with so many or more: counting ends at 10,000.")
    oldest_pending_at: datetime | None = Field(description="Since when the oldest pending task has been due.")
    reserved: int = Field(description="Working tasks that queue clients hold.")

    @classmethod
    def of(cls, state: QueueState) -> Self:
        """The view of a state."""
        return cls(**{field: getattr(state, field) for field in cls.model_fields})


class Pause(RequestBody):
    """How long a queue is paused."""

    duration: Duration | None = Field(None, description="None: until it is resumed.", examples=["1h"])


class Kick(RequestBody):
    """How many tasks are kicked."""

    limit: Annotated[int, Field(strict=True, ge=1, le=MOST_KICKED), WHOLE] = 500


class Kicked(BaseModel):
    """How many tasks were kicked."""

    count: int


@router.get("", responses=ERRORS)
async def list_queues(client: AioClientDependency) -> list[QueueView]:
    """All queues that have tasks, or were ever served or paused."""
    return [QueueView.of(state) for state in await client.queues.list()]


@router.get("/{queue:path}/why", responses=ERRORS)
async def why(queue: QueueName, client: AioClientDependency) -> QueueWaitView:
    """Why tasks of a queue wait, and when they are gone, at the rate of the last ten minutes."""
    return QueueWaitView.of(await client.queues.why(queue))


@router.post("/{queue:path}/pause", status_code=HTTPStatus.NO_CONTENT, responses=ERRORS, response_class=Response)
async def pause(queue: QueueName, client: AioClientDependency, body: Pause | None = None) -> None:
    """Stop claims from a queue; running tasks go on."""
    await client.queues.pause(queue, None if body is None else body.duration)


@router.post("/{queue:path}/resume", status_code=HTTPStatus.NO_CONTENT, responses=ERRORS, response_class=Response)
async def resume(queue: QueueName, client: AioClientDependency) -> None:
    """Allow claims from a queue again."""
    await client.queues.resume(queue)


@router.post("/{queue:path}/kick", responses=ERRORS)
async def kick(queue: QueueName, client: AioClientDependency, body: Kick | None = None) -> Kicked:
    """Make buried tasks pending, the longest buried first; if there are none, delayed ones."""
    return Kicked(count=await client.queues.kick(queue, (body or Kick()).limit))
