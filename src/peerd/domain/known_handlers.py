"""Handlers known in the cluster, and the outcome of a task that its process cannot run. Pure functions.

During a rolling deployment, processes of two versions claim from the same queues. A process of the old version does not
know a new handler, nor a handler's new argument. It gives such a task back, uncounted, for the processes that do; each
process writes its handlers into its row of ``processes``.

The task is dead only when no process of the cluster has known its handler, with arguments of these names, for
`unknown_after`, because an application may enqueue for new code before the first process has it. An argument of a wrong
type makes it dead at once, unless the handler takes other types in another process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from peerd.domain.errors import PeerdError
from peerd.domain.outcome import ERROR_LIMIT, Deferred, Failed, truncate
from peerd.domain.quoting import quoted
from peerd.domain.task import Task
from peerd.domain.units import format_duration

HandlerSignature = Mapping[str, tuple[str, bool]]
"""The arguments of a handler: the text of the type, and whether it is required."""
KnownHandlers = Mapping[str, Mapping[str, HandlerSignature] | None]
"""The handlers of each queue of a process; None where it runs any task."""

KNOWN_RETRY_RANGE: Final = (1.0, 10.0)
"""Seconds until the next attempt of a task that another process knows: a quarter of its wait, within this range."""
UNKNOWN_RETRY_RANGE: Final = (5.0, 60.0)
"""Seconds until the next attempt of a task that no process knows, likewise."""
MAX_REASON_LENGTH: Final = 500
"""Characters: an unknown argument's name, which is quoted, may be as long as a body."""


class UnsupportedTask(PeerdError):
    """A process cannot run a task that another version of the code may run, with a body of the `given` arguments.

    `signature` is the signature of the handler in this process; None where it has no such handler.
    """

    def __init__(
        self, error: str, signature: HandlerSignature | None = None, given: frozenset[str] = frozenset()
    ) -> None:
        self.signature = signature
        self.given = given
        super().__init__(error)


class KnownHandlersSnapshot(msgspec.Struct, frozen=True):
    """The state of the cluster for a task that a process cannot run."""

    now: datetime  # the database's clock
    since: datetime | None  # when a process gave the task back for the first time; None: none has yet
    known: Sequence[KnownHandlers]  # of the processes that are alive, or were within `unknown_after`


def decide_unsupported_task(
    task: Task, error: UnsupportedTask, snapshot: KnownHandlersSnapshot, unknown_after: float
) -> Deferred | Failed:
    """The outcome of an attempt whose process cannot run the task. `unknown_after` is in seconds."""
    since = snapshot.since or snapshot.now
    waited = (snapshot.now - since).total_seconds()
    others = [known.get(task.queue, {}) for known in snapshot.known]
    may_fit = any(_may_accept(handlers, task.name, error) for handlers in others)
    if error.signature is not None and accepts_arguments(error.signature, error.given):
        if not may_fit:
            return Failed(error=truncate(str(error), ERROR_LIMIT))
        reason = "the handler takes other types in other processes of the cluster"
    elif may_fit:
        known = "know it" if error.signature is None else "have a handler that it fits"
        return _deferred(error, f"other processes of the cluster {known}", _pause(waited, KNOWN_RETRY_RANGE))
    else:
        unknown = "knows it" if error.signature is None else "takes these arguments"
        reason = f"no process of the cluster {unknown}"
    if waited < unknown_after:
        return _deferred_until_dead(error, reason, since, waited, unknown_after)
    message = f"{error}; {reason}, and none that does was there for {format_duration(unknown_after)} (unknown_after)"
    return Failed(error=truncate(message, ERROR_LIMIT))


def accepts_arguments(signature: HandlerSignature, given: frozenset[str]) -> bool:
    """Whether a body has all required arguments, and none that the handler does not have.

    >>> accepts_arguments({"source": ("str", True), "height": ("int", False)}, frozenset({"source"}))
    True
    >>> accepts_arguments({"source": ("str", True)}, frozenset({"source", "height"}))
    False
    """
    return given <= signature.keys() and all(name in given for name, (_, needed) in signature.items() if needed)


def argument_names(body: str) -> frozenset[str] | None:
    """The names of the arguments that a body gives; None where it is no JSON object."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return frozenset(found) if isinstance(found, dict) else None


def find_misfit(known: Sequence[KnownHandlers], queue: str, name: str, body: str | None) -> str | None:
    """Why none of these processes can run a task; None where one can, or none serves its queue, or it has its own form.

    >>> known = [{"video": {"transcode": {"source": ("str", True), "height": ("int", False)}}}]
    >>> find_misfit(known, "video", "transcode", '{"hight":720}')
    "transcode takes source, height (optional); given are: 'hight'"
    >>> find_misfit(known, "video", "transcod", None)
    "no process has a handler 'transcod' of this queue; known are: transcode"
    """
    given, served = argument_names(body or "{}"), [handlers[queue] for handlers in known if queue in handlers]
    if given is None or not served or None in served:
        return None
    signatures = [handlers[name] for handlers in served if handlers and name in handlers]
    if any(accepts_arguments(signature, given) for signature in signatures):
        return None
    if not signatures:
        names = sorted({one for handlers in served for one in handlers or ()})
        problem = f"no process has a handler {quoted(name)} of this queue; known are: {', '.join(names) or 'none'}"
        return truncate(problem, MAX_REASON_LENGTH)
    takes = [one if needed else f"{one} (optional)" for one, (_, needed) in signatures[-1].items()]
    problem = f"{name} takes {', '.join(takes) or 'no arguments'}; given are: {str(sorted(given))[1:-1] or 'none'}"
    return truncate(problem, MAX_REASON_LENGTH)


def _may_accept(handlers: Mapping[str, HandlerSignature] | None, name: str, error: UnsupportedTask) -> bool:
    """Whether the handler of another version may take arguments that this one does not."""
    if handlers is None:
        return True
    signature = handlers.get(name)
    if signature is None or error.signature is None:
        return signature is not None
    return signature != error.signature and accepts_arguments(signature, error.given)


def _deferred_until_dead(
    error: UnsupportedTask, reason: str, since: datetime, waited: float, unknown_after: float
) -> Deferred:
    try:
        dead_at = f"{since + timedelta(seconds=unknown_after):%F %T} UTC"
    except OverflowError:
        dead_at = "the end of time"
    after = min(_pause(waited, UNKNOWN_RETRY_RANGE), unknown_after - waited)
    return _deferred(error, f"{reason}: dead at {dead_at}, unless one is started that does", after)


def _deferred(error: UnsupportedTask, reason: str, after: float) -> Deferred:
    return Deferred(after, truncate(f"{error}; {reason}", ERROR_LIMIT))


def _pause(waited: float, within: tuple[float, float]) -> float:
    minimum, maximum = within
    return min(max(waited / 4, minimum), maximum)
