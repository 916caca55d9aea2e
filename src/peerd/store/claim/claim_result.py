"""What a claim has won, as tasks: made of rows that are read by position, thousands of times in a second."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from peerd.domain.lifecycle import TaskEvent, target
from peerd.domain.task import Task
from peerd.store.claim.claimer import Claimer
from peerd.store.schema.types import parse_timestamp
from peerd.store.tasks.rows import to_number

WRITTEN_COLUMNS: Final = (
    "status",
    "worker_node_id",
    "process_id",
    "checked_at",
    "updated_at",
    "progress",
    "progress_note",
)
"""Columns of which a claim knows what it has written into them, once it is told its moment."""
RETURNED_COLUMNS: Final = (
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
BODY_BYTES_POSITION: Final = RETURNED_COLUMNS.index("body_bytes")
CLAIMED_STATUS: Final = target(TaskEvent.CLAIM)


def tasks_of_claim(claimer: Claimer, rows: Sequence[Sequence[Any]]) -> list[Task]:
    """The tasks that a claim has won, in the order of the claim, of rows as `to_claimed_task` takes them."""
    return sort_in_claim_order(
        [with_served_queue(claimer, to_claimed_task(row, claimer.node_id, claimer.process_id)) for row in rows]
    )


def with_served_queue(claimer: Claimer, task: Task) -> Task:
    """A task whose queue is called as its claimer calls it: MySQL compares texts without the spaces at their end."""
    if task.queue in claimer.queues:
        return task
    return msgspec.structs.replace(task, queue=task.queue.rstrip(" "))


def sort_in_claim_order(claimed: list[Task]) -> list[Task]:
    """Tasks in the order in which they are claimed."""
    return sorted(claimed, key=lambda task: (-task.priority, task.attempts, task.start_at or task.created_at, task.id))


def to_claimed_task(row: Sequence[Any], node_id: int, process_id: int) -> Task:
    """A task of what the database tells of it, and of what its claim has written.

    Args:
        row: the values of `RETURNED_COLUMNS` as the driver gives them: times are moments, or the texts that SQLite has.
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
        pinned_node_id,
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
    began = _to_datetime(began)
    return Task(
        id=task_id,
        queue=queue,
        name=name,
        body=body,
        body_bytes=body_bytes,
        status=CLAIMED_STATUS,
        priority=priority if type(priority) is int else to_number(priority),
        attempts=attempts if type(attempts) is int else to_number(attempts),
        max_attempts=max_attempts if type(max_attempts) is int else to_number(max_attempts),
        crashes=crashes if type(crashes) is int else to_number(crashes),
        node_id=pinned_node_id,
        start_at=None if start_at is None else _to_datetime(start_at),
        finish_at=None if finish_at is None else _to_datetime(finish_at),
        timeout=None if timeout is None else to_number(timeout),
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
        finished_at=None if finished_at is None else _to_datetime(finished_at),
        trace_context=trace_context,
        created_at=_to_datetime(created_at),
        updated_at=began,
    )


def decode_json_rows(text: str) -> list[list[Any]]:
    """The rows that SQLite has put together as one JSON text; ``body_bytes`` in hexadecimal digits.

    Numbers that are not whole have fifteen digits there.

    Raises:
        msgspec.DecodeError: it is not JSON, for there is infinity in it.
    """
    rows = msgspec.json.decode(text, type=list[list[Any]])
    for row in rows:
        if row[BODY_BYTES_POSITION] is not None:
            row[BODY_BYTES_POSITION] = bytes.fromhex(row[BODY_BYTES_POSITION])
    return rows


def _to_datetime(value: datetime | str) -> datetime:
    return parse_timestamp(value) if isinstance(value, str) else value
