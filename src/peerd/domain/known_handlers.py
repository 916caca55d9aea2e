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
from peerd.domain.outcome import ERROR_LIMIT, Deferred, Failed, cut
from peerd.domain.task import Task

Signature = Mapping[str, tuple[str, bool]]
"""Of a handler: its arguments, the text of each one's type, and whether it must be given."""
Knowledge = Mapping[str, Mapping[str, Signature] | None]
"""Of a process: its queues and the handlers of each; None where it runs whatever stands there."""

SOON: Final = (1.0, 10.0)
"""Seconds until a task is looked at again which another process knows: a quarter of its wait, within these."""
SELDOM: Final = (5.0, 60.0)
"""The same, where no process does."""


class NotServed(PeerdError):
    """This process cannot run a task that another version of the code may run.

    Args:
        error: why.
        signature: the handler's here; None where there is no such handler.
        given: the names of the arguments in the body.
    """

    def __init__(self, error: str, signature: Signature | None = None, given: frozenset[str] = frozenset()) -> None:
        self.signature = signature
        self.given = given
        super().__init__(error)


class Sight(msgspec.Struct, frozen=True):
    """What a process sees that cannot run a task.

    Attributes:
        now: the database's clock.
        since: when a process gave the task back for the first time; None: none has yet.
        known: what processes know that live, or did so within `unknown_after`.
    """

    now: datetime
    since: datetime | None
    known: Sequence[Knowledge]


def judge_not_served(task: Task, error: NotServed, sight: Sight, unknown_after: float) -> Deferred | Failed:
    """What becomes of a task that the process which holds it cannot run.

    Args:
        task: its row.
        error: why it cannot.
        sight: of the cluster.
        unknown_after: seconds.
    """
    since = sight.since or sight.now
    waited = (sight.now - since).total_seconds()
    others = [known.get(task.queue, {}) for known in sight.known]
    if error.signature is None:
        if any(handlers is None or task.name in handlers for handlers in others):
            return _deferred(error, "other processes of the cluster know it", _pause(waited, SOON))
        return _wait_for_one(error, "no process of the cluster knows it", since, waited, unknown_after)
    may_fit = any(_may_fit(handlers, task.name, error) for handlers in others)
    if not fits(error.signature, error.given):
        if may_fit:
            return _deferred(error, "it fits the handler of other processes of the cluster", _pause(waited, SOON))
        return _wait_for_one(error, "no process of the cluster takes these arguments", since, waited, unknown_after)
    if may_fit:
        why = "the handler takes other types in other processes of the cluster"
        return _wait_for_one(error, why, since, waited, unknown_after)
    return Failed(error=cut(str(error), ERROR_LIMIT))


def fits(signature: Signature, given: frozenset[str]) -> bool:
    """Whether a body has all arguments that must be given, and no others than there are.

    >>> fits({"source": ("str", True), "height": ("int", False)}, frozenset({"source"}))
    True
    >>> fits({"source": ("str", True)}, frozenset({"source", "height"}))
    False
    """
    return given <= signature.keys() and all(name in given for name, (_, needed) in signature.items() if needed)


def _may_fit(handlers: Mapping[str, Signature] | None, name: str, error: NotServed) -> bool:
    """Whether another version's handler may take what this one's does not."""
    if handlers is None:
        return True
    signature = handlers.get(name)
    return signature is not None and signature != error.signature and fits(signature, error.given)


def _wait_for_one(
    error: NotServed, why: str, since: datetime, waited: float, unknown_after: float
) -> Deferred | Failed:
    if waited >= unknown_after:
        lasting = f"{error}; {why}, and none that does was there for {format_duration(unknown_after)} (unknown_after)"
        return Failed(error=cut(lasting, ERROR_LIMIT))
    left = unknown_after - waited
    try:
        dead_at = f"{since + timedelta(seconds=unknown_after):%F %T} UTC"
    except OverflowError:
        dead_at = "the end of time"
    return _deferred(
        error, f"{why}: dead at {dead_at}, unless one is started that does", min(_pause(waited, SELDOM), left)
    )


def _deferred(error: NotServed, why: str, after: float) -> Deferred:
    return Deferred(after, cut(f"{error}; {why}", ERROR_LIMIT))


def _pause(waited: float, within: tuple[float, float]) -> float:
    least, most = within
    return min(max(waited / 4, least), most)
