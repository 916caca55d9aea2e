"""The events of a run, for the rules and for the report; and a broken rule."""

from __future__ import annotations

import hashlib
from collections import Counter

ClaimKey = tuple[int, int]
"""A task and the lease of its claim."""


class InvariantViolation(AssertionError):
    def __init__(self, rule: str, evidence: str) -> None:
        self.rule = rule
        self.evidence = evidence
        super().__init__(f"{rule}: {evidence}")


def forbid(broken: object, rule: str, *evidence: object) -> None:
    if broken:
        raise InvariantViolation(rule, " ".join(map(str, evidence)))


class SimulationHistory:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()
        self.began: set[ClaimKey] = set()
        self.ended: dict[ClaimKey, str] = {}
        """How their handlers ended."""
        self.claimed: dict[ClaimKey, int] = {}
        """To which process identity the table gave it."""
        self.released_as_unknown: set[ClaimKey] = set()
        self.taken_by_sql: set[ClaimKey] = set()
        """Claims that were ended by an UPDATE by hand, which records no attempt."""
        self.deleted_by_hand: set[int] = set()
        self.deleted_by_clients: set[int] = set()
        self.retried_by_hand: set[int] = set()

    def note(self, line: str) -> None:
        self.lines.append(line)

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] += number

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()[:16]
