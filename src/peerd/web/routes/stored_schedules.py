"""Schedules that are created and deleted at run time."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import Field

from peerd.domain.schedule import Misfire, Overlap
from peerd.domain.task import NAME_LIMIT, QUEUE_NAME
from peerd.operate.new_schedule import MAX_NAME_LENGTH, ScheduleType
from peerd.web.dependencies import AioClientDependency
from peerd.web.fields import Duration, Name, RequestBody
from peerd.web.problems import documented

router = APIRouter(prefix="/schedules", tags=["schedules"])
ERRORS = documented(HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)
DELETE_ERRORS = documented(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)


class NewSchedule(RequestBody):
    """A schedule that enqueues a task; the fields are those of `[schedules.NAME]` in peerd.toml."""

    name: str = Field(min_length=1, max_length=MAX_NAME_LENGTH, examples=["tidy"])
    queue: str = Field(pattern=f"^{QUEUE_NAME.pattern}$", max_length=NAME_LIMIT, examples=["jobs"])
    task: str = Field("", max_length=NAME_LIMIT, description="The name of its handler.", examples=["tidy"])
    body: Any = Field(None, description="Any JSON value; of a handler's task, the object of its arguments.")
    limit_key: Annotated[str, Field(min_length=1, max_length=NAME_LIMIT)] | None = None
    type: ScheduleType = "cluster"
    interval: Duration | None = None
    cron: str | None = Field(None, max_length=200, description="Five fields, or six with the seconds first.")
    timezone: str = Field("UTC", max_length=100, examples=["Europe/Berlin"])
    immediate: bool = False
    overlap: Overlap = "skip"
    misfire: Misfire = "skip"
    misfire_grace: Duration | None = None
    jitter: Duration | None = None
    enabled: bool = True


@router.post("", status_code=HTTPStatus.NO_CONTENT, responses=ERRORS, response_class=Response)
async def create(body: NewSchedule, client: AioClientDependency) -> None:
    """Create a schedule; all nodes have it within seconds. A function can be run by one of peerd.toml only."""
    given = {field: getattr(body, field) for field in body.model_fields_set - {"name"}}
    await client.schedules.create(body.name, **given)


@router.delete("/{schedule}", status_code=HTTPStatus.NO_CONTENT, responses=DELETE_ERRORS, response_class=Response)
async def delete(schedule: Name, client: AioClientDependency) -> None:
    """Delete a schedule that was created at run time."""
    await client.schedules.delete(schedule)
