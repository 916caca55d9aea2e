"""What a claim has won, as tasks: made of rows that are read by position, thousands of times in a second."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from peerd.domain.lifecycle import Event, target
from peerd.domain.task import Task
from peerd.store.claim.claimer import Claimer
from peerd.store.schema.types import moment_of
from peerd.store.tasks.rows import number_of

WRITTEN: Final = ("status", "worker_node_id", "process_id", "checked_at", "updated_at", "progress", "progress_note")
"""Columns of which a claim knows what it has written into them, once it is told its moment."""
TOLD: Final = (
    "id",
    "queue",
    "name",
    "body",
    "body_bytes",
    "priority",
    "attempts",
    "max_attempts",
    "crashes",
    "node_id",
    "start_at",
    "finish_at",
    "timeout",
    "unique_key",
    "limit_key",
    "lease",
    "worker_started_at",
    "result",
    "error",
    "finished_at",
    "trace_context",
    "created_at",
)
"""The columns that the database tells, in this order."""
BODY_BYTES: Final = TOLD.index("body_bytes")
CLAIMED: Final = target(Event.CLAIM)


def won_by(claimer: Claimer, rows: Sequence[Sequence[Any]]) -> list[Task]:
    """The tasks that a claim has won, in the order of the claim, of rows as `won_task` takes them."""
    return in_order([as_served(claimer, won_task(row, claimer.node_id, claimer.process_id)) for row in rows])


def as_served(claimer: Claimer, task: Task) -> Task:
    """A task whose queue is called as its claimer calls it: MySQL compares texts without the spaces at their end."""
    if task.queue in claimer.queues:
        return task
    return msgspec.structs.replace(task, queue=task.queue.rstrip(" "))


def in_order(claimed: list[Task]) -> list[Task]:
    """Tasks in the order in which they are claimed."""
    return sorted(claimed, key=lambda task: (-task.priority, task.attempts, task.start_at or task.created_at, task.id))


def won_task(row: Sequence[Any], node_id: int, process_id: int) -> Task:
    """A task of what the database tells of it, and of what its claim has written.

    Args:
        row: the values of `TOLD` as the driver gives them: times are moments, or the texts that SQLite has.
        node_id: of the claimer.
        process_id: of the claimer.
    """
    (
        task_id,
        queue,
        name,
        body,
        body_bytes,
        priority,
        attempts,
        max_attempts,
        crashes,
        only_node,
        start_at,
        finish_at,
        timeout,
        unique_key,
        limit_key,
        lease,
        began,
        result,
        error,
        finished_at,
        trace_context,
        created_at,
    ) = row
    began = _moment(began)
    return Task(
        id=task_id,
        queue=queue,
        name=name,
        body=body,
        body_bytes=body_bytes,
        status=CLAIMED,
        priority=priority if type(priority) is int else number_of(priority),
        attempts=attempts if type(attempts) is int else number_of(attempts),
        max_attempts=max_attempts if type(max_attempts) is int else number_of(max_attempts),
        crashes=crashes if type(crashes) is int else number_of(crashes),
        node_id=only_node,
        start_at=None if start_at is None else _moment(start_at),
        finish_at=None if finish_at is None else _moment(finish_at),
        timeout=None if timeout is None else number_of(timeout),
        unique_key=unique_key,
        limit_key=limit_key,
        lease=lease,
        worker_node_id=node_id,
        process_id=process_id,
        worker_started_at=began,
        checked_at=began,
        progress=None,
        progress_note=None,
        result=result,
        error=error,
        finished_at=None if finished_at is None else _moment(finished_at),
        trace_context=trace_context,
        created_at=_moment(created_at),
        updated_at=began,
    )


def rows_in_json(text: str) -> list[list[Any]]:
    """The rows that SQLite has put together as one JSON text; ``body_bytes`` in hexadecimal digits.

    Numbers that are not whole have fifteen digits there.

    Raises:
        msgspec.DecodeError: it is not JSON, for there is infinity in it.
    """
    rows = msgspec.json.decode(text, type=list[list[Any]])
    for row in rows:
        if row[BODY_BYTES] is not None:
            row[BODY_BYTES] = bytes.fromhex(row[BODY_BYTES])
    return rows


def _moment(value: datetime | str) -> datetime:
    return moment_of(value) if isinstance(value, str) else value
