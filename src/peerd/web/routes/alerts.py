"""Alerts."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from peerd.domain.alert import AlertKind, AlertState
from peerd.operate.alerts import MAX_PAGE
from peerd.store.alerts import AlertRecord
from peerd.web.dependencies import AioClientDependency
from peerd.web.fields import Duration, RequestBody
from peerd.web.problems import documented

router = APIRouter(prefix="/alerts", tags=["alerts"])


class AlertQuery(RequestBody):
    """Which alerts a page has."""

    on: bool | None = Field(None, description="Only conditions that are on; false: only all others.", examples=[True])
    kind: list[AlertKind] = Field(
        default_factory=list, max_length=len(AlertKind), description="Only of these.", examples=[["backlog"]]
    )
    since: Duration | None = Field(None, description="Only those seen in so many last seconds.", examples=["1d"])
    after: str | None = Field(None, max_length=19, pattern="^[0-9]+$", description="`next` of the page before.")
    limit: int = Field(50, ge=1, le=MAX_PAGE)


class AlertView(BaseModel):
    """A condition that is or was on, or an incident."""

    id: str
    kind: str = Field(examples=["backlog"])
    subject: str = Field(description="A queue, a node, a schedule, a slot; or empty.", examples=["video"])
    queue: str | None = Field(description="The queue that it is about, if it is about one.", examples=["video"])
    state: AlertState = Field(
        description="Of a condition: `on`, `ended`, or `unseen` (not reported again in time); of an incident: `recent` "
        "(of the last hour) or `past`."
    )
    text: str = Field(examples=["tasks of video wait: the oldest has been due for 2h"])
    node: str = Field(description="Where it was reported last.", examples=["video-1"])
    slot: str | None
    pid: int | None
    data: dict[str, Any] = Field(examples=[{"queue": "video", "seconds": 7200}])
    times: int = Field(description="How often it was reported, or has happened.", examples=[3])
    raised_at: datetime
    last_seen_at: datetime
    ended_at: datetime | None = Field(description="When the condition ended.")

    @classmethod
    def of(cls, alert: AlertRecord) -> Self:
        """The view of an alert."""
        return cls(**{field: getattr(alert, field) for field in cls.model_fields} | {"id": str(alert.id)})


class AlertPageView(BaseModel):
    """A page of alerts, the newest first."""

    items: list[AlertView]
    next: str | None = Field(description="`after` of the next page; null on the last one.")


@router.get("", responses=documented(HTTPStatus.UNPROCESSABLE_ENTITY))
async def list_alerts(client: AioClientDependency, wanted: Annotated[AlertQuery, Query()]) -> AlertPageView:
    """A page of the alerts that are on, or were raised lately."""
    page = await client.alerts.list(
        on=wanted.on, kinds=wanted.kind or None, since=wanted.since, after=wanted.after, limit=wanted.limit
    )
    return AlertPageView(items=[AlertView.of(alert) for alert in page.items], next=page.next)
