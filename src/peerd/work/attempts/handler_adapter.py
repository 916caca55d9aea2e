"""User code as an attempt calls it, whatever it was declared as."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from peerd.domain.outcome import Outcome
from peerd.domain.task import Task
from peerd.work.context import Context
from peerd.work.settings import EffectiveWorkerSettings


class HandlerAdapter(Protocol):
    """User code for one task, whatever it was declared as."""

    @property
    def timeout(self) -> float | None:
        """Seconds that it may run, where it has a limit of its own."""
        ...

    @property
    def is_cancellable(self) -> bool:
        """Whether it ends when it is cancelled; a thread does not."""
        ...

    @property
    def has_hooks(self) -> bool:
        """Whether there is anything in `before` or `after`."""
        ...

    def prepare(self, ctx: Context) -> None:
        """Check the task before anything else is called. Raises what makes it unfit."""
        ...

    def run(self, ctx: Context) -> Awaitable[object]:
        """Run it; the value it returns. Raises whatever it raises."""
        ...

    def retries(self, error: Exception) -> bool:
        """Whether this exception is worth another attempt."""
        ...

    def delay(self, ctx: Context) -> float:
        """Seconds until the next attempt, this one having failed."""
        ...

    async def before(self, ctx: Context) -> None:
        """The hooks before an attempt."""
        ...

    async def after(self, ctx: Context, outcome: Outcome) -> None:
        """The hooks after an attempt."""
        ...


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
