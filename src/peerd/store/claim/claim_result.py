"""The tasks that a claim has won, made from rows as the driver returns them: thousands in a second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from peerd.domain.lifecycle import TaskEvent, target
from peerd.domain.task import Task
from peerd.store.claim.claimer import Claimer
from peerd.store.schema.types import parse_timestamp
from peerd.store.tasks.rows import TASK_FIELDS, to_number

WRITTEN_COLUMNS: Final = frozenset(
    ("status", "worker_node_id", "process_id", "checked_at", "updated_at", "progress", "progress_note")
)
"""Columns whose values a claim knows, because it has written them, once it has read ``worker_started_at``."""
RETURNED_COLUMNS: Final = tuple(field for field in TASK_FIELDS if field not in WRITTEN_COLUMNS)
"""The columns that are read from the database, in this order."""
BODY_BYTES_POSITION: Final = RETURNED_COLUMNS.index("body_bytes")
NUMBERS: Final = ("priority", "attempts", "max_attempts", "crashes", "timeout")
TIMES: Final = ("start_at", "finish_at", "worker_started_at", "finished_at", "created_at")
CLAIMED_STATUS: Final = target(TaskEvent.CLAIM)


def tasks_of_claim(claimer: Claimer, rows: Sequence[Sequence[Any]]) -> list[Task]:
    """The tasks that a claim has won, in its order, from `RETURNED_COLUMNS` as the driver gives them."""
    return sort_in_claim_order([with_served_queue(claimer, _to_task(row, claimer)) for row in rows])


def with_served_queue(claimer: Claimer, task: Task) -> Task:
    """The task, with its queue spelled as its claimer spells it: MySQL ignores trailing spaces when it compares."""
    if task.queue in claimer.queues:
        return task
    return msgspec.structs.replace(task, queue=task.queue.rstrip(" "))


def sort_in_claim_order(claimed: list[Task]) -> list[Task]:
    """Tasks in the order in which they are claimed."""
    return sorted(claimed, key=lambda task: (-task.priority, task.attempts, task.start_at or task.created_at, task.id))


def _to_task(row: Sequence[Any], claimer: Claimer) -> Task:
    values = dict(zip(RETURNED_COLUMNS, row, strict=True))
    for name in NUMBERS:
        if (number := values[name]) is not None and type(number) is not int:
            values[name] = to_number(number)
    for name in TIMES:
        if isinstance(time := values[name], str):  # SQLite's times are texts
            values[name] = parse_timestamp(time)
    claimed_at = values["worker_started_at"]
    return Task(
        status=CLAIMED_STATUS,
        worker_node_id=claimer.node_id,
        process_id=claimer.process_id,
        checked_at=claimed_at,
        updated_at=claimed_at,
        progress=None,
        progress_note=None,
        **values,
    )


def decode_json_rows(text: str) -> list[list[Any]]:
    """The rows that SQLite has put together as one JSON text; ``body_bytes`` is in hexadecimal digits.

    Numbers that are not whole have fifteen digits there.

    Raises:
        msgspec.DecodeError: it is not JSON, because it contains infinity.
    """
    rows = msgspec.json.decode(text, type=list[list[Any]])
    for row in rows:
        if row[BODY_BYTES_POSITION] is not None:
            row[BODY_BYTES_POSITION] = bytes.fromhex(row[BODY_BYTES_POSITION])
    return rows
