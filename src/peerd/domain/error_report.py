"""An error of the user's code, as the hook for an error tracker gets it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec


class ErrorKind(StrEnum):
    """What has failed."""

    HANDLER = "handler"
    """An attempt of a handler, by an exception or its time-out."""
    CRASH = "crash"
    """Tasks whose process died while it ran them."""
    PROCESS = "process"
    """A process that did not boot, or ended by itself."""
    LOOP = "loop"
    """A round of a periodic worker."""
    SCHEDULE = "schedule"
    """A scheduled function."""
    MESSAGE = "message"
    """A message handler."""
    REQUEST = "request"
    """A web request."""
    BACKGROUND = "background"
    """Background work."""
    HOOK = "hook"
    """A hook before or after an attempt."""
    UNCAUGHT = "uncaught"
    """An exception that nothing has caught, of an asyncio task, a callback, a thread or a finalizer."""


class ErrorReport(msgspec.Struct, frozen=True, kw_only=True):
    """An error of the user's code.

    Attributes:
        kind: what has failed.
        error: the error in a line.
        what: its name: of the handler, the worker, the schedule, the message's action, the request's path, the slot.
        traceback: as text; None where there is none, as when a process was killed.
        exception: the exception itself, if it was raised in this process.
        node: the node.
        slot: the slot of the process that reports it, such as video-1.
        queue, handler, task_id: of the attempt.
        attempt: its number, from 1.
        will_retry: whether another attempt follows.
        tags: names and values to search by, all of them text.
    """

    kind: ErrorKind
    error: str
    what: str
    traceback: str | None = None
    exception: BaseException | None = None
    node: str = ""
    slot: str = ""
    queue: str | None = None
    handler: str | None = None
    task_id: int | None = None
    attempt: int | None = None
    will_retry: bool | None = None

    @property
    def tags(self) -> dict[str, str]:
        """What an error tracker groups and searches by.

        >>> ErrorReport(kind=ErrorKind.LOOP, error="OSError", what="Cleanup", node="a", slot="cleanup-1").tags
        {'kind': 'loop', 'what': 'Cleanup', 'node': 'a', 'slot': 'cleanup-1'}
        """
        names = ("kind", "what", "node", "slot", "queue", "handler", "task_id", "attempt", "will_retry")
        return {name: str(value) for name in names if (value := getattr(self, name)) not in {None, ""}}


ErrorHook = Callable[[ErrorReport], object]
"""The function that [errors] hook names."""
