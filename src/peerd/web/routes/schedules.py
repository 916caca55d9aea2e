"""Schedules: their next and last runs; run, enable and disable them."""

from __future__ import annotations

import json
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Self

import msgspec
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from peerd.domain.schedule import RunStatus
from peerd.operate.schedules import ScheduleState
from peerd.store.schedule_runs import ScheduleRun
from peerd.web.dependencies import AioClientDependency
from peerd.web.fields import Name, RequestBody
from peerd.web.problems import documented

router = APIRouter(prefix="/schedules", tags=["schedules"])
ERRORS = documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)


class RunView(BaseModel):
    """A run of a schedule."""

    id: str
    schedule: str = Field(examples=["refresh"])
    status: RunStatus
    origin: str = Field(description="`clock`, `start`, `hand`, `custom`, or `again` after its node was lost.")
    tick_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    slot: str | None
    task_id: str | None = Field(description="The task that it has enqueued.")
    error: str | None
    traceback: str | None

    @classmethod
    def of(cls, run: ScheduleRun) -> Self:
        """The view of a row."""
        row = {field: getattr(run, field) for field in cls.model_fields}
        return cls(**row | {"id": str(run.id), "task_id": None if run.task_id is None else str(run.task_id)})


class ScheduleNodeView(BaseModel):
    """A node that has a schedule."""

    node: str
    next_at: datetime | None
    is_own: bool = Field(description="Its definition equals the cluster's.")
    error: str | None


class ScheduleView(BaseModel):
    """A schedule."""

    name: str = Field(examples=["refresh"])
    type: str = Field(examples=["cluster"])
    state: str = Field(description="`on`, `disabled` by hand, `off` in peerd.toml, `error`, or `nowhere`.")
    definition: dict[str, Any] | None
    is_stored: bool = Field(description="It was created at run time.")
    next_at: datetime | None
    last_at: datetime | None
    last_run: RunView | None
    nodes: list[ScheduleNodeView]

    @classmethod
    def of(cls, state: ScheduleState) -> Self:
        """The view of a state."""
        nodes = [
            ScheduleNodeView(node=node.node, next_at=node.next_at, is_own=node.is_own, error=node.error)
            for node in state.nodes
        ]
        return cls(
            name=state.name,
            type=state.type,
            state=state.state,
            is_stored=state.is_stored,
            definition=None if state.definition is None else json.loads(msgspec.json.encode(state.definition)),
            next_at=state.next_at,
            last_at=state.last_at,
            last_run=None if state.last_run is None else RunView.of(state.last_run),
            nodes=nodes,
        )


class RunArguments(RequestBody):
    """Arguments of a run instead of the schedule's own: by position, or by name."""

    args: list[Any] | dict[str, Any] = Field(default_factory=list, examples=[["a.mp4"]])


class RunQuery(RequestBody):
    """Which runs are listed."""

    limit: int = Field(100, ge=1, le=1_000)


@router.get("", responses=ERRORS)
async def list_schedules(client: AioClientDependency) -> list[ScheduleView]:
    """All schedules that a node has or recently had."""
    return [ScheduleView.of(state) for state in await client.schedules.list()]


@router.get("/{schedule}", responses=ERRORS)
async def show(schedule: Name, client: AioClientDependency) -> ScheduleView:
    """One schedule."""
    return ScheduleView.of(await client.schedules.get(schedule))


@router.get("/{schedule}/runs", responses=ERRORS)
async def list_runs(schedule: Name, client: AioClientDependency, wanted: Annotated[RunQuery, Query()]) -> list[RunView]:
    """The newest runs of a schedule, newest first."""
    return [RunView.of(run) for run in await client.schedules.runs(schedule, limit=wanted.limit)]


@router.post("/{schedule}/run", status_code=HTTPStatus.ACCEPTED, responses=ERRORS)
async def run(schedule: Name, client: AioClientDependency, body: RunArguments | None = None) -> RunView:
    """Request a run now, also of a disabled schedule; a node takes it within a second."""
    match (body or RunArguments()).args:
        case dict() as named:
            return RunView.of(await client.schedules.run(schedule, **named))
        case positional:
            return RunView.of(await client.schedules.run(schedule, *positional))


@router.post("/{schedule}/enable", status_code=HTTPStatus.NO_CONTENT, responses=ERRORS, response_class=Response)
async def enable(schedule: Name, client: AioClientDependency) -> None:
    """Enable a schedule that was disabled; missed ticks are not made up for."""
    await client.schedules.enable(schedule)


@router.post("/{schedule}/disable", status_code=HTTPStatus.NO_CONTENT, responses=ERRORS, response_class=Response)
async def disable(schedule: Name, client: AioClientDependency) -> None:
    """Disable a schedule in the whole cluster."""
    await client.schedules.disable(schedule)
