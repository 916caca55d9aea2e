"""The outcomes of an attempt: returned or raised by a handler, and written by the store. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

import msgspec

from peerd.domain.duration import parse_duration

ERROR_LIMIT: Final = 8 * 1024
"""Characters of an error text; a longer one is cut in its middle."""
TRACEBACK_LIMIT: Final = 64 * 1024
RESULT_LIMIT: Final = 1024 * 1024
"""Bytes of a result's JSON; larger ones belong into a file or a table of the application."""


class OutcomeSignal(Exception):
    """An outcome that a handler asks for, by returning it or by raising it."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason)


class Retry(OutcomeSignal):
    """The attempt failed; try again later, unless it was the last.

    Args:
        after: until the next attempt, seconds or "10s"; None takes it from the handler's backoff.
        reason: for people.
    """

    def __init__(self, after: str | float | None = None, reason: str = "") -> None:
        self.after = None if after is None else parse_duration(after)
        super().__init__(reason or "the handler asked for another attempt")


class Snooze(OutcomeSignal):
    """Not now: run it after a while; the attempt does not count.

    Args:
        after: seconds, or "1h".
        reason: for people.
    """

    def __init__(self, after: str | float, reason: str = "") -> None:
        self.after = parse_duration(after)
        super().__init__(reason or "the handler asked to be run later")


class Cancel(OutcomeSignal):
    """The task is not needed any more."""


class Dead(OutcomeSignal):
    """The task can never succeed; keep it for people to inspect."""


class Done(msgspec.Struct, frozen=True):
    """The handler succeeded; ``result`` is JSON text, or None."""

    result: str | None = None


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt failed and counts.

    ``retry_in`` is seconds until the next attempt; None: there is none, and the task is dead. ``label`` is the outcome
    column of the attempt: failure, dead, timeout. ``cause`` is how its process died, if it did.
    """

    error: str
    traceback: str | None = None
    retry_in: float | None = None
    label: str = "failure"
    cause: str | None = None


class Snoozed(msgspec.Struct, frozen=True):
    """The handler asked to run again after ``after`` seconds."""

    after: float
    reason: str


class Canceled(msgspec.Struct, frozen=True):
    """The handler reported that the task is not needed any more."""

    reason: str


class Released(msgspec.Struct, frozen=True):
    """The process ends, and gives the task back."""

    reason: str


class Deferred(msgspec.Struct, frozen=True):
    """The process does not know the task's handler, or its arguments; another may claim it after ``after`` seconds."""

    after: float
    reason: str


Outcome = Done | Failed | Snoozed | Canceled | Released | Deferred


class StuckAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt whose code does not end although its time is over.

    A thread cannot be cancelled, and a coroutine can swallow its cancellation. No other process may run the task while
    the code runs, so the outcome is not written yet: it goes to the master, comes back with the death of the process,
    and is written by the agent then, fenced by the lease as every other outcome.

    >>> stuck = StuckAttempt(task_id=1, lease=2, queue="q", name="it", seconds=60.0, label="timeout", error="too long")
    >>> StuckAttempt.from_json(stuck.to_json()) == stuck
    True
    """

    task_id: int
    lease: int
    queue: str
    name: str
    seconds: float  # how long it had run
    label: str  # the attempt's outcome: `timeout`, or `canceled` after its finish_at
    error: str
    traceback: str | None = None  # where its code was
    retry_in: float | None = None  # seconds until the next attempt, if the policy of the task has one left
    is_last: bool = False

    def outcome(self, cause: str) -> Failed | Canceled:
        """The outcome to write; ``cause`` is how the process died."""
        if self.label == "canceled":
            return Canceled(self.error)
        return Failed(error=self.error, traceback=self.traceback, retry_in=self.retry_in, label=self.label, cause=cause)

    def to_json(self) -> dict[str, Any]:
        """The content of a frame."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read the content of a frame; raises msgspec.ValidationError for anything else."""
        return msgspec.convert(data, cls)


def truncate(text: str, limit: int) -> str:
    """A text of at most ``limit`` characters, without characters that databases refuse.

    The middle is left out: the beginning of an error names the cause, its end the place.

    >>> truncate("a" * 50, 40)
    'aaaaaaaaaa … 30 characters … aaaaaaaaaa'
    >>> len(truncate("a" * 10**7, 255)) <= 255
    True
    """
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\N{REPLACEMENT CHARACTER}")
    if len(text) <= limit:
        return text
    kept = (limit - len(f" … {len(text)} characters … ")) // 2
    return f"{text[:kept]} … {len(text) - 2 * kept} characters … {text[len(text) - kept :]}"
