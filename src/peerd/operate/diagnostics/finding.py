"""A finding of an examination, and the check of a version."""

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


def check_version(subject: str, found: tuple[int, ...], needed: tuple[int, ...], version_text: str) -> Finding:
    """Compare a version with the oldest that peerd supports.

    >>> check_version("SQLite", (3, 40, 1), (3, 35), "3.40.1").level
    <Level.OK: 'ok'>
    """
    if found >= needed:
        return Finding(Level.OK, subject, version_text)
    oldest = ".".join(map(str, needed))
    return Finding(Level.PROBLEM, subject, f"{version_text} is older than {oldest}", f"use {subject} {oldest} or later")


def version_numbers(version: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version.

    >>> version_numbers("11.4.2-MariaDB-log")
    (11, 4, 2)
    """
    found = []
    for part in version.split("-", maxsplit=1)[0].split("."):
        if not part.isdigit():
            break
        found.append(int(part))
    return tuple(found)
