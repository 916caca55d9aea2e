"""Rows as values, for tests that need one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from peerd.domain.lifecycle import Status
from peerd.domain.task import Task

MOMENT: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""When rows were made that say nothing else."""


def make_task(**fields: Any) -> Task:
    """A task's row as its worker has it: claimed, and in its first attempt. Any column may be given.

    >>> task = make_task(queue="video", attempts=2)
    >>> task.status, task.attempts, task.lease
    (<Status.WORKING: 'working'>, 2, 1)
    """
    row: dict[str, Any] = dict.fromkeys(Task.__struct_fields__)
    row |= {"id": 1, "queue": "test", "name": "", "status": Status.WORKING, "priority": 10}
    row |= {"attempts": 0, "max_attempts": 3, "crashes": 0, "lease": 1}
    row |= {"worker_started_at": MOMENT, "checked_at": MOMENT, "created_at": MOMENT, "updated_at": MOMENT}
    return Task(**(row | fields))
