"""How an attempt can end. Values only: what a handler returns or raises, and what the store is told."""

from __future__ import annotations

from typing import Final

import msgspec

from peerd.domain.duration import parse_duration

ERROR_LIMIT: Final = 8 * 1024
"""Characters of an error text; what is longer is cut in its middle."""
TRACEBACK_LIMIT: Final = 64 * 1024
RESULT_LIMIT: Final = 1024 * 1024
"""Bytes of a result's JSON. Larger ones belong into a file or a table of the application."""


class OutcomeSignal(Exception):
    """An outcome that a handler asks for, by returning it or by raising it."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason)


class Retry(OutcomeSignal):
    """The attempt failed; try again later, unless it was the last.

    Args:
        after: until the next attempt, seconds or "10s"; None is what the handler's backoff says.
        reason: for whoever looks.
    """

    def __init__(self, after: str | float | None = None, reason: str = "") -> None:
        self.after = None if after is None else parse_duration(after)
        super().__init__(reason or "the handler asked for another attempt")


class Snooze(OutcomeSignal):
    """Not now: run it after a while; the attempt does not count.

    Args:
        after: seconds, or "1h".
        reason: for whoever looks.
    """

    def __init__(self, after: str | float, reason: str = "") -> None:
        self.after = parse_duration(after)
        super().__init__(reason or "the handler asked to be run later")


class Cancel(OutcomeSignal):
    """Nobody wants it any more."""


class Dead(OutcomeSignal):
    """It can never succeed; keep it for the person who will look."""


class Done(msgspec.Struct, frozen=True):
    """The handler succeeded; ``result`` is JSON text, or None."""

    result: str | None = None


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt failed and counts.

    ``retry_in`` is seconds until the next attempt; None means that there shall be no other: the task is dead.
    ``label`` is the attempt's outcome column: failure, dead, timeout. ``cause`` is how its process died, where it did.
    """

    error: str
    traceback: str | None = None
    retry_in: float | None = None
    label: str = "failure"
    cause: str | None = None


class Snoozed(msgspec.Struct, frozen=True):
    """The handler wants to be run after ``after`` seconds."""

    after: float
    reason: str


class Canceled(msgspec.Struct, frozen=True):
    """The handler says that nobody wants the task."""

    reason: str


class Released(msgspec.Struct, frozen=True):
    """The process must end, and gives the task back."""

    reason: str


class Deferred(msgspec.Struct, frozen=True):
    """The process does not know the task's handler, or its arguments: others shall have it, after ``after`` seconds."""

    after: float
    reason: str


Outcome = Done | Failed | Snoozed | Canceled | Released | Deferred


def truncate(text: str, limit: int) -> str:
    """A text no longer than ``limit`` characters, without what databases refuse.

    The middle is left out: an error's beginning says what, its end where.

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
