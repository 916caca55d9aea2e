"""A finding of an examination."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Level(StrEnum):
    """The severity: a warning slows claims or will be a problem; with a problem, tasks are not run or may be lost."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(msgspec.Struct, frozen=True):
    """What was examined, the result, and what to do."""

    level: Level
    subject: str
    message: str
    remedy: str = ""
