"""The audit log."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from peerd.domain.task import NAME_LIMIT
from peerd.operate.audit import MAX_PAGE
from peerd.store.audit import AuditEntry
from peerd.web.dependencies import AioClientDependency
from peerd.web.fields import Duration, RequestBody
from peerd.web.problems import documented

router = APIRouter(prefix="/audit", tags=["access"])
FilterText = Annotated[str, Field(min_length=1, max_length=NAME_LIMIT)]


class AuditQuery(RequestBody):
    """Which entries a page has."""

    actor: FilterText | None = Field(None, examples=["ann"])
    operation: FilterText | None = Field(None, examples=["tasks.retry"])
    target_kind: FilterText | None = Field(None, examples=["task"])
    target: FilterText | None = Field(None, examples=["17"])
    since: Duration | None = Field(None, description="Only of so many last seconds.", examples=["1d"])
    after: str | None = Field(None, max_length=19, pattern="^[0-9]+$", description="`next` of the page before.")
    limit: int = Field(50, ge=1, le=MAX_PAGE)


class AuditEntryView(BaseModel):
    """What was done, or refused."""

    id: str
    at: datetime
    actor_kind: str = Field(examples=["user"])
    actor: str = Field(examples=["ann"])
    address: str | None = Field(description="The network address, or the host of a program.")
    way: str = Field(description="`python`, `cli`, `api` or `s3`.")
    operation: str = Field(examples=["tasks.retry"])
    target_kind: str | None
    target: str | None
    arguments: Any
    before: Any = Field(description="The columns that have changed, before.")
    after: Any
    outcome: str = Field(description="`done` or `refused`.")
    problem: str | None

    @classmethod
    def of(cls, entry: AuditEntry) -> Self:
        """The view of an entry."""
        return cls(**{field: getattr(entry, field) for field in cls.model_fields} | {"id": str(entry.id)})


class AuditPageView(BaseModel):
    """A page of entries, the newest first."""

    items: list[AuditEntryView]
    next: str | None = Field(description="`after` of the next page; null on the last one.")


@router.get("", responses=documented(HTTPStatus.UNPROCESSABLE_ENTITY))
async def list_entries(client: AioClientDependency, wanted: Annotated[AuditQuery, Query()]) -> AuditPageView:
    """A page of the audit log."""
    given = wanted.model_dump(exclude={"operation"})
    page = await client.audit.page(**given, operation_name=wanted.operation)
    return AuditPageView(items=[AuditEntryView.of(entry) for entry in page.items], next=page.next)
