"""What the processes of a cluster can run, and what becomes of a task that one of them cannot: pure functions.

While new code is deployed on one node after another, processes of two versions claim from the same queues. A process
of the old one does not know a new handler, nor a handler's new argument. It gives such a task back, uncounted, for the
processes that do. Each process writes into its row of ``processes`` what it knows.

A task is dead for it only when no process of the cluster has known its handler, with arguments of these names, for
`unknown_after`: an application may enqueue for new code before the first process has it. A value of a wrong type is
dead at once, unless the handler takes other types in another process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from peerd.domain.duration import format_duration
from peerd.domain.errors import PeerdError
from peerd.domain.outcome import ERROR_LIMIT, Deferred, Failed, truncate
from peerd.domain.task import Task

HandlerSignature = Mapping[str, tuple[str, bool]]
"""Of a handler: its arguments, the text of each one's type, and whether it must be given."""
KnownHandlers = Mapping[str, Mapping[str, HandlerSignature] | None]
"""Of a process: its queues and the handlers of each; None where it runs whatever stands there."""

KNOWN_RETRY_RANGE: Final = (1.0, 10.0)
"""Seconds until a task is looked at again which another process knows: a quarter of its wait, within these."""
UNKNOWN_RETRY_RANGE: Final = (5.0, 60.0)
"""The same, where no process does."""


class UnsupportedTask(PeerdError):
    """This process cannot run a task that another version of the code may run.

    Args:
        error: why.
        signature: the handler's here; None where there is no such handler.
        given: the names of the arguments in the body.
    """

    def __init__(
        self, error: str, signature: HandlerSignature | None = None, given: frozenset[str] = frozenset()
    ) -> None:
        self.signature = signature
        self.given = given
        super().__init__(error)


class KnownHandlersSnapshot(msgspec.Struct, frozen=True):
    """What a process sees that cannot run a task.

    Attributes:
        now: the database's clock.
        since: when a process gave the task back for the first time; None: none has yet.
        known: what processes know that live, or did so within `unknown_after`.
    """

    now: datetime
    since: datetime | None
    known: Sequence[KnownHandlers]


def decide_unsupported_task(
    task: Task, error: UnsupportedTask, snapshot: KnownHandlersSnapshot, unknown_after: float
) -> Deferred | Failed:
    """What becomes of a task that the process which holds it cannot run.

    Args:
        task: its row.
        error: why it cannot.
        snapshot: of the cluster.
        unknown_after: seconds.
    """
    since = snapshot.since or snapshot.now
    waited_seconds = (snapshot.now - since).total_seconds()
    others = [known.get(task.queue, {}) for known in snapshot.known]
    if error.signature is None:
        if any(handlers is None or task.name in handlers for handlers in others):
            return _deferred(error, "other processes of the cluster know it", _pause(waited_seconds, KNOWN_RETRY_RANGE))
        return _defer_or_fail(error, "no process of the cluster knows it", since, waited_seconds, unknown_after)
    may_fit = any(_may_accept(handlers, task.name, error) for handlers in others)
    if not accepts_arguments(error.signature, error.given):
        if may_fit:
            return _deferred(
                error,
                "it fits the handler of other processes of the cluster",
                _pause(waited_seconds, KNOWN_RETRY_RANGE),
            )
        return _defer_or_fail(
            error, "no process of the cluster takes these arguments", since, waited_seconds, unknown_after
        )
    if may_fit:
        reason = "the handler takes other types in other processes of the cluster"
        return _defer_or_fail(error, reason, since, waited_seconds, unknown_after)
    return Failed(error=truncate(str(error), ERROR_LIMIT))


def accepts_arguments(signature: HandlerSignature, given: frozenset[str]) -> bool:
    """Whether a body has all arguments that must be given, and no others than there are.

    >>> accepts_arguments({"source": ("str", True), "height": ("int", False)}, frozenset({"source"}))
    True
    >>> accepts_arguments({"source": ("str", True)}, frozenset({"source", "height"}))
    False
    """
    return given <= signature.keys() and all(name in given for name, (_, needed) in signature.items() if needed)


def _may_accept(handlers: Mapping[str, HandlerSignature] | None, name: str, error: UnsupportedTask) -> bool:
    """Whether another version's handler may take what this one's does not."""
    if handlers is None:
        return True
    signature = handlers.get(name)
    return signature is not None and signature != error.signature and accepts_arguments(signature, error.given)


def _defer_or_fail(
    error: UnsupportedTask, reason: str, since: datetime, waited_seconds: float, unknown_after: float
) -> Deferred | Failed:
    if waited_seconds >= unknown_after:
        message = (
            f"{error}; {reason}, and none that does was there for {format_duration(unknown_after)} (unknown_after)"
        )
        return Failed(error=truncate(message, ERROR_LIMIT))
    left = unknown_after - waited_seconds
    try:
        dead_at = f"{since + timedelta(seconds=unknown_after):%F %T} UTC"
    except OverflowError:
        dead_at = "the end of time"
    return _deferred(
        error,
        f"{reason}: dead at {dead_at}, unless one is started that does",
        min(_pause(waited_seconds, UNKNOWN_RETRY_RANGE), left),
    )


def _deferred(error: UnsupportedTask, reason: str, after: float) -> Deferred:
    return Deferred(after, truncate(f"{error}; {reason}", ERROR_LIMIT))


def _pause(waited_seconds: float, within: tuple[float, float]) -> float:
    minimum, maximum = within
    return min(max(waited_seconds / 4, minimum), maximum)
