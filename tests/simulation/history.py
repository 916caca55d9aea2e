"""What happened in a run, as rules and people need it."""

from __future__ import annotations

import hashlib

import msgspec

ClaimKey = tuple[int, int]
"""A task and the lease of its claim."""


class HandlerEnd(msgspec.Struct):
    """How a handler ended, and where."""

    pid: int
    how: str


class SimulationHistory:
    """The handlers that began and ended, the dead, what people deleted; and the whole as lines of text."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.began: dict[ClaimKey, int] = {}
        """By which process."""
        self.ended: dict[ClaimKey, HandlerEnd] = {}
        self.claimed: dict[ClaimKey, int] = {}
        """To which process identity the table gave it."""
        self.given_back_unheard: set[ClaimKey] = set()
        """Claims whose answer was lost, given back by their own process."""
        self.taken_by_sql: set[ClaimKey] = set()
        """Claims that somebody ended by an UPDATE of his own, which records no attempt."""
        self.deleted_by_hand: set[int] = set()
        self.retried_by_hand: set[int] = set()
        self.counts: dict[str, int] = {}

    def note(self, line: str) -> None:
        self.lines.append(line)

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    def digest(self) -> str:
        """The same for two runs in which the same happened in the same order."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()[:16]
