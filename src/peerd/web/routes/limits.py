"""Limits of queues and of their keys."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Self

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from peerd.domain.limit import MAX_COUNT
from peerd.domain.task import NAME_LIMIT
from peerd.store.limits import LimitState
from peerd.web.dependencies import AioClientDependency
from peerd.web.fields import WHOLE, QueueName, RequestBody
from peerd.web.problems import documented

router = APIRouter(prefix="/limits", tags=["limits"])
ERRORS = documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)


class LimitTarget(RequestBody):
    """Which limit of a queue: without both, that of the queue as a whole."""

    key: str | None = Field(None, min_length=1, max_length=NAME_LIMIT, description="The limit of this key.")
    each_key: bool = Field(False, description="The limit of each key that has none of its own.")


class LimitQuery(RequestBody):
    """Which limits are listed."""

    queue: str | None = Field(None, max_length=NAME_LIMIT)


class LimitView(BaseModel):
    """A limit, and how much of it is used now."""

    queue: str = Field(examples=["uploads"])
    key: str = Field(description="Of this key; empty: the queue as a whole; `*`: each key without a limit of its own.")
    running: int | None = Field(description="Tasks at once.")
    starts: int | None = Field(description="In each period.")
    period: float | None = Field(description="Seconds.")
    running_now: int | None
    starts_now: int | None
    full_keys: int | None = Field(description="Of a limit of each key: keys that may start no further task now.")

    @classmethod
    def of(cls, state: LimitState) -> Self:
        """The view of a state."""
        return cls(**{field: getattr(state, field) for field in cls.model_fields})


class LimitBody(RequestBody):
    """A limit: of tasks at once, of starts in a period, or of both."""

    running: Annotated[int, Field(strict=True, ge=0, le=MAX_COUNT, examples=[3]), WHOLE] | None = None
    rate: str | None = Field(None, max_length=40, examples=["100/1m"])


@router.get("", responses=ERRORS)
async def list_limits(client: AioClientDependency, wanted: Annotated[LimitQuery, Query()]) -> list[LimitView]:
    """All limits, or those of one queue."""
    return [LimitView.of(state) for state in await client.limits.list(wanted.queue)]


@router.put("/{queue:path}", status_code=HTTPStatus.NO_CONTENT, responses=ERRORS, response_class=Response)
async def set_limit(
    queue: QueueName, body: LimitBody, client: AioClientDependency, target: Annotated[LimitTarget, Query()]
) -> None:
    """Limit a queue as a whole, one key of it, or each of its keys, in place of the limit before."""
    await client.limits.set(queue, key=target.key, each_key=target.each_key, running=body.running, rate=body.rate)


@router.delete("/{queue:path}", status_code=HTTPStatus.NO_CONTENT, responses=ERRORS, response_class=Response)
async def remove_limit(queue: QueueName, client: AioClientDependency, target: Annotated[LimitTarget, Query()]) -> None:
    """Remove a limit, if there is one."""
    await client.limits.remove(queue, key=target.key, each_key=target.each_key)
