"""The events of a run, for the rules and for the report; and a broken rule."""

from __future__ import annotations

import hashlib

import msgspec

ClaimKey = tuple[int, int]


class InvariantViolation(AssertionError):
    def __init__(self, rule: str, evidence: str) -> None:
        self.rule = rule
        self.evidence = evidence
        super().__init__(f"{rule}: {evidence}")


def forbid(broken: object, rule: str, evidence: str) -> None:
    if broken:
        raise InvariantViolation(rule, evidence)


class HandlerEnd(msgspec.Struct):
    pid: int
    how: str


class SimulationHistory:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.began: dict[ClaimKey, int] = {}
        self.ended: dict[ClaimKey, HandlerEnd] = {}
        self.claimed: dict[ClaimKey, int] = {}
        self.released_as_unknown: set[ClaimKey] = set()
        """Claims whose answer was lost, released by their own process."""
        self.taken_by_sql: set[ClaimKey] = set()
        """Claims that were ended by an UPDATE by hand, which records no attempt."""
        self.deleted_by_hand: set[int] = set()
        self.deleted_by_clients: set[int] = set()
        self.retried_by_hand: set[int] = set()
        self.counts: dict[str, int] = {}

    def note(self, line: str) -> None:
        self.lines.append(line)

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()[:16]
