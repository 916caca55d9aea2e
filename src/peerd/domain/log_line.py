"""The lines that the code of an attempt logs: their levels, their cursors, and how their texts are bounded."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

import msgspec

from peerd.domain.errors import InvalidFilter
from peerd.domain.quoting import quoted

LOG_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
"""The levels by name, with the numbers that Python's logging gives them."""
LINE_LIMIT: Final = 8192
"""Bytes of a line's message in UTF-8, and of its fields as JSON, each."""
LOGGER_LIMIT: Final = 200
"""Characters of a logger's name."""
CUT: Final = " … (cut)"
"""The end of a text that was longer."""
_CURSOR: Final = re.compile(r"(\d{1,18})-(\d{1,18})")
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


class TaskLogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line that the code of an attempt has logged.

    Attributes:
        lease: of the claim under which it was logged. Several claims may belong to one attempt: a released one is not
            counted.
        sequence: its number among the lines of the claim, from 0. Missing numbers are lines that were not kept.
        attempt: the number of the attempt, from 1.
        at: when it was logged, by the database's clock.
        level: one of `LOG_LEVELS`.
        logger: the name of the logger, or `stdout` or `stderr` of printed lines.
        message: the text.
        fields: named values.
    """

    lease: int
    sequence: int
    attempt: int
    at: datetime
    level: str
    logger: str
    message: str
    fields: dict[str, Any] | None = None

    @property
    def cursor(self) -> str:
        """The place of the line among those of its task, as text."""
        return LogCursor(self.lease, self.sequence).text


class LogCursor(msgspec.Struct, frozen=True, order=True):
    """A place among the lines of a task.

    >>> LogCursor.parse("3-17")
    LogCursor(lease=3, sequence=17)
    >>> LogCursor.parse("3-17") < LogCursor.parse("12-0"), LogCursor(3, 17).text
    (True, '3-17')
    """

    lease: int
    sequence: int

    @classmethod
    def parse(cls, text: object) -> LogCursor:
        """The place that a cursor names; raises `InvalidFilter`."""
        found = _CURSOR.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise InvalidFilter("after", f"{quoted(str(text))} is no cursor; give next of an earlier answer")
        return cls(int(found[1]), int(found[2]))

    @property
    def text(self) -> str:
        """The cursor as text."""
        return f"{self.lease}-{self.sequence}"


def name_of_level(number: int) -> str:
    """The level for a number of Python's logging.

    >>> name_of_level(20), name_of_level(35), name_of_level(1), name_of_level(90)
    ('info', 'warning', 'debug', 'critical')
    """
    return next((name for name, least in reversed(LOG_LEVELS.items()) if number >= least), "debug")


def levels_from(least: object) -> tuple[str, ...]:
    """The levels from this one up; raises `InvalidFilter`.

    >>> levels_from("error")
    ('error', 'critical')
    """
    number = LOG_LEVELS.get(least) if isinstance(least, str) else None
    if number is None:
        raise InvalidFilter("level", f"{quoted(str(least))} is none of {', '.join(LOG_LEVELS)}")
    return tuple(name for name, its_number in LOG_LEVELS.items() if its_number >= number)


def bounded_text(text: str, limit: int = LINE_LIMIT) -> str:
    r"""A text of at most ``limit`` bytes in UTF-8, in which what no database stores is escaped.

    >>> bounded_text("a\x00b\udcff")
    'a\\x00b\\udcff'
    >>> bounded_text("x" * 100, 20)
    'xxxxxxxxxx … (cut)'
    >>> len(bounded_text("\N{SNOWMAN}" * 10**6).encode()) <= LINE_LIMIT
    True
    """
    if len(text) <= limit and text.isascii() and "\x00" not in text:
        return text
    start = _UNSTORABLE.sub(_escaped, text[: limit + 1])
    encoded = start.encode()
    if len(text) <= limit and len(encoded) <= limit:
        return start
    return encoded[: max(limit - len(CUT.encode()), 0)].decode(errors="ignore") + CUT


def _escaped(found: re.Match[str]) -> str:
    number = ord(found[0])
    return "\\x00" if number == 0 else f"\\u{number:04x}"
