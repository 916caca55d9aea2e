"""A broken rule and the evidence."""

from __future__ import annotations


class InvariantViolation(AssertionError):
    """A rule was broken.

    Args:
        rule: its name.
        proof: what shows it.
    """

    def __init__(self, rule: str, evidence: str) -> None:
        self.rule = rule
        self.evidence = evidence
        super().__init__(f"{rule}: {evidence}")
