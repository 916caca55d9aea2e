"""A rule that was broken, and what shows it."""

from __future__ import annotations


class InvariantViolation(AssertionError):
    """A rule was broken.

    Args:
        rule: which.
        proof: what shows it.
    """

    def __init__(self, rule: str, proof: str) -> None:
        self.rule = rule
        self.proof = proof
        super().__init__(f"{rule}: {proof}")
