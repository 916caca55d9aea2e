"""A finding of an examination, and the verdict on several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from peerd.domain.quoting import Masker


class Level(StrEnum):
    """The severity: a warning slows claims or will be a problem; with a problem, tasks are not run or may be lost."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"

    @property
    def weight(self) -> int:
        """The place of the level among all: a worse one has a greater weight."""
        return list(Level).index(self)


class Verdict(StrEnum):
    """Whether all is well: red with a problem, yellow with a warning, green else."""

    GREEN = "green"
    YELLOW = "yellow"
    RED = "red"


class Finding(msgspec.Struct, frozen=True):
    """What was examined, the result, and what to do.

    Attributes:
        about: where to look, by kind: ``{"node": "video-1"}``, ``{"queue": "mail", "status": "dead"}``; empty where
            there is no such thing.
    """

    level: Level
    subject: str
    message: str
    remedy: str = ""
    about: Mapping[str, str] = {}


def verdict_on(findings: Iterable[Finding]) -> Verdict:
    """The verdict that the worst finding makes.

    >>> verdict_on([Finding(Level.NOTE, "queues", "mail is paused")]).value
    'green'
    """
    worst = max((finding.level.weight for finding in findings), default=0)
    return list(Verdict)[max(0, worst - Level.NOTE.weight)]


def mask_findings(findings: Iterable[Finding], masker: Masker | None) -> list[Finding]:
    """The findings with the texts that an actor may see."""
    if masker is None:
        return list(findings)
    return [msgspec.structs.replace(finding, message=masker.text(finding.message)) for finding in findings]
