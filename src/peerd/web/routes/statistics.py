"""Statistics: what ran, how it ended, how long it waited and ran; how deep the queues were; and whether all is well."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from peerd.domain.task import NAME_LIMIT, QUEUE_NAME
from peerd.operate.statistics import MOST_OF_SERIES
from peerd.web.dependencies import AioClientDependency
from peerd.web.fields import RequestBody
from peerd.web.problems import documented
from peerd.web.routes.statistics_models import DepthView, ErrorsView, OverviewView, PointView, RowView

router = APIRouter(tags=["statistics"])
ERRORS = documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)

Queue = Annotated[str | None, Field(pattern=f"^{QUEUE_NAME.pattern}$", max_length=NAME_LIMIT)]
Handler = Annotated[str | None, Field(max_length=NAME_LIMIT)]
Node = Annotated[str | None, Field(min_length=1, max_length=NAME_LIMIT)]
Since = Annotated[
    str,
    Field(
        pattern="^[1-9][0-9]{0,7}[smhd]$",
        description="How far back: 60s to 366d.",
        examples=["1h"],
    ),
]


class DepthQuery(RequestBody):
    """Of when, and of what."""

    since: Since = "1h"
    queue: Queue = None


class SummaryQuery(DepthQuery):
    """Of when, of what, and how it is grouped."""

    by: Literal["total", "queue", "handler", "node"] = "queue"
    name: Handler = None
    node: Node = None


class ComparedQuery(SummaryQuery):
    """The same, and with what it is compared."""

    against: Since | None = Field(None, description="As long a time that ended so much earlier.", examples=["1d"])


class ErrorQuery(DepthQuery):
    """Of when, and of what."""

    since: Since = "1d"
    name: Handler = None


class SeriesQuery(SummaryQuery):
    """The same, and the time between two points."""

    by: Literal["total", "queue", "handler", "node"] = "total"
    step: Literal["1m", "10m", "1h"] | None = Field(None, description="By default, one of a hundred points or two.")
    most: Annotated[int, Field(ge=1, le=MOST_OF_SERIES)] | None = Field(
        None, description="Groups at the most: those with the most attempts."
    )


@router.get("/statistics", responses=ERRORS)
async def summary(client: AioClientDependency, wanted: Annotated[ComparedQuery, Query()]) -> list[RowView]:
    """The attempts that have ended in some time, by queue, handler or node; with ``against``, beside earlier ones."""
    return [RowView.of(row) for row in await client.statistics.summary(**wanted.model_dump())]


@router.get("/statistics/series", responses=ERRORS)
async def series(client: AioClientDependency, wanted: Annotated[SeriesQuery, Query()]) -> list[PointView]:
    """The same as a time series."""
    return [PointView.of(point) for point in await client.statistics.series(**wanted.model_dump())]


@router.get("/statistics/depths", responses=ERRORS)
async def depths(client: AioClientDependency, wanted: Annotated[DepthQuery, Query()]) -> list[DepthView]:
    """How many unfinished tasks there were, and how old the oldest pending one was, of a queue or of all together."""
    return [DepthView.of(point) for point in await client.statistics.depths(wanted.since, queue=wanted.queue)]


@router.get("/errors", responses=ERRORS)
async def errors(client: AioClientDependency, wanted: Annotated[ErrorQuery, Query()]) -> ErrorsView:
    """The attempts that failed in some time, in groups of one handler and one kind of error, the greatest first."""
    return ErrorsView.of(await client.statistics.errors(**wanted.model_dump()))


@router.get("/overview", responses=ERRORS)
async def overview(client: AioClientDependency) -> OverviewView:
    """Whether all is well, and the figures of the last ten minutes."""
    return OverviewView.of(await client.statistics.overview())
