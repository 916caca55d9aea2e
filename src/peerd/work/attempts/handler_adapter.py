"""The interface between an attempt and the user code that serves its task."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from peerd.domain.outcome import Outcome
from peerd.domain.task import Task
from peerd.work.context import Context
from peerd.work.settings import EffectiveWorkerSettings


class HandlerAdapter:
    """User code for one task, whatever it was declared as.

    Attributes:
        timeout: seconds that it may run, where it has a limit of its own.
        is_cancellable: whether it ends when it is cancelled; a thread does not.
        has_hooks: whether `before` or `after` does anything.
    """

    __slots__ = ()
    timeout: float | None = None
    is_cancellable: bool = True
    has_hooks: bool = False

    def prepare(self, ctx: Context) -> None:
        """Check the task before anything else is called; raises what makes it unfit."""

    def run(self, ctx: Context) -> Awaitable[object]:
        """Run the handler; the value that it returns."""
        raise NotImplementedError

    def retries(self, error: Exception) -> bool:
        """Whether another attempt may follow this exception."""
        return True

    def delay(self, ctx: Context) -> float:
        """Seconds until the next attempt, this one having failed."""
        return 0.0

    async def before(self, ctx: Context) -> None:
        """Call the hooks before an attempt."""

    async def after(self, ctx: Context, outcome: Outcome) -> None:
        """Call the hooks after an attempt."""


class JsonText:
    """A result that is JSON text already, because it came from another process."""

    def __init__(self, text: str | None) -> None:
        self.text = text


async def call_hook(hook: Callable[..., Awaitable[None] | None], *args: Any) -> None:
    """Call a hook, coroutine function or plain."""
    result = hook(*args)
    if inspect.isawaitable(result):
        await result


def timeout_of(task: Task, handler_adapter: HandlerAdapter, settings: EffectiveWorkerSettings) -> float | None:
    """Seconds that an attempt may run: the row's own limit, the handler's, or the worker's."""
    if task.timeout is not None:
        return task.timeout
    return handler_adapter.timeout if handler_adapter.timeout is not None else settings.timeout
