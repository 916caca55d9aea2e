"""A task that was enqueued, as whoever enqueued it holds it: look at it, wait for it, get its result."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, Final, Self

from peerd.domain.duration import format_duration, parse_duration
from peerd.domain.errors import PeerdError
from peerd.domain.lifecycle import Status
from peerd.domain.task import Task

FIRST_PAUSE: Final = 0.02
MAX_PAUSE: Final = 0.5
"""Seconds between two looks at a task that is waited for; each pause is half as long again as the one before."""


class JobFailed(PeerdError):
    """The task is dead: its attempts are exhausted, or its outcome said so. ``task`` is its row."""

    def __init__(self, task: Task) -> None:
        self.task = task
        super().__init__(
            f"task {task.id} is dead after {task.attempts} attempts: {task.error or 'no error is recorded'}"
        )


class JobCanceled(PeerdError):
    """The task was canceled. ``task`` is its row."""

    def __init__(self, task: Task) -> None:
        self.task = task
        super().__init__(f"task {task.id} was canceled: {task.error or 'no reason is recorded'}")


class JobExpired(PeerdError):
    """The task's row is gone, and its result with it."""

    def __init__(self, task_id: int) -> None:
        self.task_id = task_id
        super().__init__(
            f"task {task_id} is gone: its finish_at passed before it was started, or it was purged or deleted"
        )


class JobTimeout(PeerdError, TimeoutError):
    """The task has not ended within the time that one was willing to wait; it goes on. ``task`` is its row."""

    def __init__(self, task: Task, timeout: float) -> None:
        self.task = task
        super().__init__(f"task {task.id} is still {task.status} after {format_duration(timeout)}; it goes on")


class Job:
    """A task that was enqueued.

    Its methods block: in a coroutine use those of ``client.aio`` (``await client.aio.result(job)``).

    Attributes:
        id: the task's id.
        created: False when an unfinished task with the same unique key was there already; then it is that one.
        task: the row as it was when last read; None before the first time.
    """

    def __init__(self, task_id: int, created: bool, find_task: Callable[[int], Task | None]) -> None:  # noqa: FBT001
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
        task = self.task if self.task is not None else self.update(self._find_task(self.id))
        return task.status

    def refresh(self) -> Self:
        """Read the row anew; the job itself.

        Raises:
            JobExpired: the row is gone.
        """
        self.update(self._find_task(self.id))
        return self

    def wait(self, timeout: str | float | None = None) -> Task:
        """Wait until the task is done, dead or canceled; its row.

        Args:
            timeout: seconds, or "1h"; None waits for ever.

        Raises:
            JobExpired: the row is gone.
            JobTimeout: it has not ended in time (a TimeoutError too).
        """
        backoff = PollBackoff(timeout)
        while not (task := self.update(self._find_task(self.id))).finished:
            time.sleep(backoff.next_pause(task))
        return task

    def result(self, timeout: str | float | None = None) -> Any:
        """Wait for the task's end; what its handler returned, as JSON has it.

        Raises:
            JobFailed: it is dead.
            JobCanceled: it was canceled.
            JobExpired, JobTimeout: see `wait`.
        """
        return task_result(self.wait(timeout))

    def update(self, task: Task | None) -> Task:
        """Take note of the row.

        Raises:
            JobExpired: there is none.
        """
        if task is None:
            raise JobExpired(self.id)
        self.task = task
        return task


class PollBackoff:
    """How long to wait until the next look.

    Args:
        timeout: in all, seconds or "1h"; None is for ever.
    """

    def __init__(self, timeout: str | float | None) -> None:
        self._timeout = None if timeout is None else parse_duration(timeout)
        self._deadline = None if self._timeout is None else time.monotonic() + self._timeout
        self._next_pause = FIRST_PAUSE

    def next_pause(self, task: Task) -> float:
        """Seconds until the next look at a task that has not ended.

        Raises:
            JobTimeout: the time is over.
        """
        next_pause = self._next_pause
        self._next_pause = min(self._next_pause * 1.5, MAX_PAUSE)
        if self._deadline is None or self._timeout is None:
            return next_pause
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise JobTimeout(task, self._timeout)
        return min(next_pause, remaining)

    async def sleep(self, task: Task) -> None:
        """`next_pause`, slept in an event loop."""
        await asyncio.sleep(self.next_pause(task))


def task_result(task: Task) -> Any:
    """The result of a task that has ended.

    Raises:
        JobFailed: it is dead.
        JobCanceled: it was canceled.
    """
    match task.status:
        case Status.DEAD:
            raise JobFailed(task)
        case Status.CANCELED:
            raise JobCanceled(task)
        case _:
            return None if task.result is None else json.loads(task.result)
