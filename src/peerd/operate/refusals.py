"""How many refusals become entries of the audit log: a program that repeats what it must not do cannot fill it."""

from __future__ import annotations

from typing import Final

import msgspec

from peerd.domain.access import Actor
from peerd.runtime.concurrency import ForkSafeLock

WINDOW: Final = 60.0
"""Seconds."""
MOST_IN_WINDOW: Final = 10
"""Entries of one actor and one operation."""
MOST_COUNTED: Final = 10_000
"""Pairs of an actor and an operation that are counted; of the oldest one the count is forgotten."""


class _Count(msgspec.Struct):
    """The refusals of an actor and an operation: entries since the beginning of the window, and what was left out."""

    began: float
    entries: int = 0
    left_out: int = 0


class RefusalLimit:
    """Limits the entries of a process.

    >>> limit, eve = RefusalLimit(), Actor(name="eve")
    >>> [limit.admit(eve, "tasks.cancel", now=0.5 * number) for number in range(12)]
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, None, None]
    >>> limit.admit(eve, "tasks.retry", now=6.0), limit.admit(eve, "tasks.cancel", now=61.0)
    (0, 2)
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str], _Count] = {}
        self._lock = ForkSafeLock()

    def admit(self, actor: Actor, operation: str, now: float) -> int | None:
        """Count a refusal.

        Args:
            actor: what it is of.
            operation: such as ``tasks.cancel``.
            now: seconds of a clock that never goes back.

        Returns:
            how many refusals before it were left out, for its entry; None: it gets no entry.
        """
        key = (actor.kind, actor.name, operation)
        with self._lock:
            count = self._counts.get(key)
            if count is None or now - count.began >= WINDOW:
                left_out = 0 if count is None else count.left_out
                self._counts.pop(key, None)
                if len(self._counts) >= MOST_COUNTED:
                    del self._counts[next(iter(self._counts))]
                count = self._counts[key] = _Count(now, left_out=left_out)
            if count.entries >= MOST_IN_WINDOW:
                count.left_out += 1
                return None
            count.entries += 1
            left_out, count.left_out = count.left_out, 0
            return left_out
