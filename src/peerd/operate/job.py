"""A handle of an enqueued task: its status, a wait for its end, and its result."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Self

from peerd.domain.errors import PeerdError
from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.domain.units import format_duration, parse_duration

FindTask = Callable[[int], Task | None]
"""Reads a task by its id."""
FIRST_PAUSE: Final = 0.02
MAX_PAUSE: Final = 0.5
"""Seconds between two reads of a task that is waited for; each pause is half as long again as the one before."""


class JobFailed(PeerdError):
    """The task is dead: its attempts are exhausted, or its outcome said so. ``task`` is its row."""

    def __init__(self, task: Task) -> None:
        self.task = task
        error = task.error or "no error is recorded"
        attempts = "1 attempt" if task.attempts == 1 else f"{task.attempts} attempts"
        super().__init__(f"task {task.id} is dead after {attempts}: {error}")


class JobCanceled(PeerdError):
    """The task was canceled. ``task`` is its row."""

    def __init__(self, task: Task) -> None:
        self.task = task
        super().__init__(f"task {task.id} was canceled: {task.error or 'no reason is recorded'}")


class JobExpired(PeerdError):
    """The task's row is gone, and its result with it."""

    def __init__(self, task_id: int) -> None:
        self.task_id = task_id
        super().__init__(f"task {task_id} is gone: it expired at its finish_at, or it was purged or deleted")


class JobTimeout(PeerdError, TimeoutError):
    """The task has not ended within the timeout; it is not cancelled. ``task`` is its row."""

    def __init__(self, task: Task, timeout: float) -> None:
        self.task = task
        super().__init__(f"task {task.id} is still {task.status} after {format_duration(timeout)}; it still runs")


class Job:
    """A handle of an enqueued task.

    Its methods block: in a coroutine use those of ``client.aio`` (``await client.aio.result(job)``).

    Attributes:
        id: the task's id.
        created: False if an unfinished task with the same unique key existed; then the job is of that task.
        task: the row as it was when last read; None before the first time.
    """

    def __init__(self, task_id: int, created: bool, find_task: FindTask) -> None:  # noqa: FBT001
        self.id = task_id
        self.created = created
        self.task: Task | None = None
        self._find_task = find_task

    def __repr__(self) -> str:
        return f"<Job {self.id}{'' if self.task is None else f' {self.task.status}'}>"

    @property
    def status(self) -> Status:
        """The status when the row was last read; read now if it never was.

        Raises:
            JobExpired: the row is gone.
        """
        return (self.task or self.update(self._find_task(self.id))).status

    def refresh(self) -> Self:
        """Read the row again, and return the job itself.

        Raises:
            JobExpired: the row is gone.
        """
        self.update(self._find_task(self.id))
        return self

    def wait(self, timeout: str | float | None = None) -> Task:
        """Wait until the task is done, dead or canceled, and return its row.

        Args:
            timeout: seconds, or "1h"; None waits for ever.

        Raises:
            JobExpired: the row is gone.
            JobTimeout: it has not ended in time (a TimeoutError too).
        """
        task = self.update(self._find_task(self.id))
        for pause in poll_pauses(self, timeout):
            time.sleep(pause)
            task = self.update(self._find_task(self.id))
        return task

    def result(self, timeout: str | float | None = None) -> Any:
        """Wait for the end of the task, and return its result, decoded from JSON.

        Raises:
            JobFailed: it is dead.
            JobCanceled: it was canceled.
            JobExpired, JobTimeout: see `wait`.
        """
        return task_result(self.wait(timeout))

    def update(self, task: Task | None) -> Task:
        """Keep the row that was read; raises `JobExpired` where there is none."""
        if task is None:
            raise JobExpired(self.id)
        self.task = task
        return task


def poll_pauses(job: Job, timeout: str | float | None) -> Iterator[float]:
    """The seconds to wait before each further read of a task, until it has ended; raises `JobTimeout`."""
    seconds = math.inf if timeout is None else parse_duration(timeout)
    deadline = time.monotonic() + seconds
    pause = FIRST_PAUSE
    while job.task is not None and not job.task.finished:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise JobTimeout(job.task, seconds)
        yield min(pause, remaining)
        pause = min(pause * 1.5, MAX_PAUSE)


def task_result(task: Task) -> Any:
    """The result of a task that has ended; raises `JobFailed` or `JobCanceled`."""
    match task.status:
        case Status.DEAD:
            raise JobFailed(task)
        case Status.CANCELED:
            raise JobCanceled(task)
        case _:
            return None if task.result is None else json.loads(task.result)
