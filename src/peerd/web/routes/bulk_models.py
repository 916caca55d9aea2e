"""Bodies of requests about bulk actions, and views of bulk actions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal, Self

import msgspec
from pydantic import BaseModel, Field

from peerd.domain.bulk import (
    BulkAction,
    BulkBury,
    BulkCancel,
    BulkChange,
    BulkDelete,
    BulkKick,
    BulkMove,
    BulkMoveToQueue,
    BulkPreview,
    BulkRetry,
    BulkSnooze,
    BulkState,
    TaskAction,
)
from peerd.domain.column_condition import MAX_TEXT, MOST_CONDITIONS
from peerd.domain.lifecycle import Status
from peerd.operate import validation
from peerd.operate.request import json_text
from peerd.operate.task_filter import TaskFilter
from peerd.web.fields import MAX_ID, WHOLE, Duration, RequestBody
from peerd.web.routes.task_models import Priority, Queue, ShortText, TaskView

PLAIN: dict[str, Callable[[], TaskAction]] = {
    "retry": BulkRetry,
    "delete": BulkDelete,
    "bury": BulkBury,
    "kick": BulkKick,
}


class PlainAction(RequestBody):
    """Retry, delete, bury or kick each task."""

    type: Literal["retry", "delete", "bury", "kick"]

    def to_action(self) -> TaskAction:
        """The action of the client."""
        return PLAIN[self.type]()


class CancelAction(RequestBody):
    """Cancel each task."""

    type: Literal["cancel"]
    reason: str = Field("canceled by hand", max_length=2_000)

    def to_action(self) -> TaskAction:
        """The action of the client."""
        return BulkCancel(validation.reason(self.reason))


class SnoozeAction(RequestBody):
    """Let each task start later."""

    type: Literal["snooze"]
    duration: Duration

    def to_action(self) -> TaskAction:
        """The action of the client."""
        return BulkSnooze(validation.seconds("duration", self.duration))


class MoveAction(RequestBody):
    """Pin each task to a node, or to none (null)."""

    type: Literal["move"]
    node: ShortText | None = Field(examples=["video-2"])

    def to_action(self) -> TaskAction:
        """The action of the client."""
        return BulkMove(validation.text_or_none("node", self.node))


class MoveToQueueAction(RequestBody):
    """Put each task into another queue."""

    type: Literal["move_to_queue"]
    queue: Queue

    def to_action(self) -> TaskAction:
        """The action of the client."""
        return BulkMoveToQueue(validation.queue(self.queue))


class ChangeAction(RequestBody):
    """Change the priority, or the body, of each task."""

    type: Literal["change"]
    priority: Priority | None = None
    body: Any = None

    def to_action(self) -> TaskAction:
        """The action of the client."""
        body = json_text("body", self.body) if "body" in self.model_fields_set else None
        return BulkChange(priority=self.priority, body=body)


AnyAction = Annotated[
    PlainAction | CancelAction | SnoozeAction | MoveAction | MoveToQueueAction | ChangeAction,
    Field(discriminator="type"),
]


class FilterBody(RequestBody):
    """Which tasks: those that meet all of it."""

    queue: ShortText | None = Field(None, examples=["video"])
    name: ShortText | None = None
    status: Status | None = Field(None, examples=["dead"])
    node: ShortText | None = Field(None, description="Pinned to it, or held by it, now or last.")
    search: str | None = Field(None, min_length=1, max_length=MAX_TEXT, description="A part of the body or the error.")
    where: list[str] = Field(
        default_factory=list, max_length=MOST_CONDITIONS, description="A column compared.", examples=[["priority>=20"]]
    )

    def to_filter(self) -> TaskFilter:
        """The filter of the client."""
        return TaskFilter(**self.model_dump())


class BulkBody(RequestBody):
    """An action on all tasks of a filter."""

    action: AnyAction = Field(examples=[{"type": "retry"}])
    filter: FilterBody = Field(default_factory=FilterBody, examples=[{"status": "dead", "queue": "video"}])
    all: bool = Field(False, description="Allows a filter without conditions: all tasks.")
    dry_run: bool = Field(False, description="Only say how many tasks there are, and which are the first.")
    digest: str | None = Field(
        None, max_length=validation.MAX_CURSOR, description="Of the dry run; then exactly its tasks are acted on."
    )
    limit: Annotated[int, Field(strict=True, ge=1, le=MAX_ID), WHOLE] | None = Field(
        None, description="Tasks that are acted on at the most."
    )


class BulkPreviewView(BaseModel):
    """What a bulk action would be for."""

    matched: int = Field(description="Tasks that meet the filter, and whose status allows the action.")
    at_least: bool = Field(description="There are, or may be, more: counting ends at 10,000.")
    examples: list[TaskView]
    highest_id: str
    as_of: datetime
    digest: str = Field(description="For the request that begins the bulk action.")

    @classmethod
    def of(cls, preview: BulkPreview, names: dict[int, str]) -> Self:
        """The view of a preview."""
        row: dict[str, Any] = {field: getattr(preview, field) for field in cls.model_fields}
        examples = [TaskView.of(task, names) for task in preview.examples]
        return cls(**row | {"examples": examples, "highest_id": str(preview.highest_id)})


class RefusedTaskView(BaseModel):
    """A task that could not be acted on."""

    task: str
    error: str


class BulkView(BaseModel):
    """A bulk action, and how far it is."""

    id: str = Field(examples=["17"])
    action: dict[str, Any] = Field(examples=[{"type": "retry"}])
    filter: dict[str, Any] = Field(
        description="With `queues` where its actor was restricted to some.", examples=[{"status": "dead"}]
    )
    state: BulkState
    progress: float | None = Field(description="0 to 1; null while its tasks are counted.")
    matched: int = Field(description="Tasks that it is for.")
    at_least: bool = Field(description="There are more, which are being counted.")
    examined: int = Field(description="Tasks that were compared with the filter.")
    done: int
    skipped: int = Field(description="Tasks that had changed since the preview.")
    failed: int = Field(description="Tasks that could not be acted on.")
    errors: list[RefusedTaskView] = Field(description="The first of these.")
    postponed: int = Field(description="Tasks whose rows another session has locked; it comes back to them.")
    error: str | None
    highest_id: str
    as_of: datetime
    limit: int | None
    created_by: str | None
    created_at: datetime
    started_at: datetime | None
    updated_at: datetime
    finished_at: datetime | None

    @classmethod
    def of(cls, bulk: BulkAction) -> Self:
        """The view of a row."""
        row: dict[str, Any] = {field: getattr(bulk, field, None) for field in cls.model_fields}
        errors = [RefusedTaskView(task=str(one.task), error=one.error) for one in bulk.errors]
        row |= {"id": str(bulk.id), "highest_id": str(bulk.highest_id), "limit": bulk.most, "errors": errors}
        return cls(**row | {"action": msgspec.to_builtins(bulk.action)})


class BulkQuery(RequestBody):
    """Which bulk actions are listed."""

    state: list[BulkState] | None = Field(None, description="All states if left out.")
    limit: int = Field(50, ge=1, le=1_000)
