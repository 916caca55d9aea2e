"""Values as text for people: durations and ages, coloured statuses, plurals; control characters are replaced."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from rich.text import Text

from peerd.domain.lifecycle import Status
from peerd.domain.quoting import escape_text

STATUS_STYLES: Final[dict[str, str]] = {
    Status.SCHEDULED: "blue",
    Status.PENDING: "cyan",
    Status.WORKING: "bold yellow",
    Status.DONE: "green",
    Status.FAILURE: "magenta",
    Status.DEAD: "bold red",
    Status.WAITING: "blue",
    Status.CANCELED: "bright_black",
    Status.BURIED: "bright_black",
}

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


sanitize: Final = escape_text
"""Escapes characters that control a terminal, and surrogates, which no stream can encode."""


def to_text(value: Text | str) -> Text:
    """A styled text as it is; a string sanitized."""
    return value if isinstance(value, Text) else Text(sanitize(value))


def first_line(text: str | None) -> str:
    """The first line of a text, sanitized."""
    stripped = (text or "").strip()
    return sanitize(stripped.splitlines()[0]) if stripped else ""


def format_elapsed(seconds: float) -> str:
    """A duration in its one or two largest units.

    >>> [format_elapsed(seconds) for seconds in (0.2, 3.4, 75, 3 * 3600 + 120, 90000)]
    ['0 s', '3 s', '1 min 15 s', '3 h 2 min', '1 d 1 h']
    """
    rest = max(round(seconds), 0)
    parts: list[str] = []
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
    return " ".join(filter(None, parts[:2])) or "0 s"


def format_elapsed_short(seconds: float) -> str:
    """A duration in its largest unit.

    >>> format_elapsed_short(75), format_elapsed_short(90000)
    ('1 min', '1 d')
    """
    rest = max(round(seconds), 0)
    return next((f"{rest // size} {unit}" for size, unit in _UNITS if rest >= size), "0 s")


def format_age(moment: datetime | None, now: datetime) -> str:
    """A time relative to now.

    >>> from datetime import timedelta, UTC
    >>> now = datetime(2026, 1, 1, tzinfo=UTC)
    >>> format_age(now - timedelta(seconds=3), now), format_age(now + timedelta(minutes=5), now), format_age(None, now)
    ('3 s ago', 'in 5 min', 'never')
    """
    if moment is None:
        return "never"
    seconds = (now - moment).total_seconds()
    return f"{format_elapsed_short(seconds)} ago" if seconds > -0.5 else f"in {format_elapsed_short(-seconds)}"


def format_timestamp(moment: datetime | None, now: datetime) -> str:
    """A time in full, and relative to now."""
    return "–" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC ({format_age(moment, now)})"


def pluralize(count: int, noun: str) -> str:
    """A number with its noun.

    >>> pluralize(1, "task"), pluralize(2, "process")
    ('1 task', '2 processes')
    """
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"
