"""Checks of the arguments of operations, before the database sees them; each error says what is allowed."""

from __future__ import annotations

from peerd.domain.column_condition import searchable
from peerd.domain.errors import InvalidFilter, InvalidTask
from peerd.domain.quoting import quoted
from peerd.domain.task import NAME_LIMIT, QUEUE_NAME, check_text
from peerd.domain.units import format_duration, parse_duration

MAX_ID = 2**63 - 1
MAX_CURSOR = 2_000
"""Characters."""
MAX_IDEMPOTENCY_KEY = 255
"""Characters."""


def text(name: str, value: object) -> str:
    """A text that can stand in a column of names."""
    if not isinstance(value, str):
        raise InvalidFilter(name, f"{quoted(value)} is not text")
    try:
        check_text(name, value, NAME_LIMIT)
    except InvalidTask as error:
        raise InvalidFilter(name, error.problem) from None
    return value


def text_or_none(name: str, value: object) -> str | None:
    """Check a text that may be None; see `text`."""
    return None if value is None else text(name, value)


def node(value: object) -> str:
    """A name that a node can have."""
    if value == "":
        raise InvalidFilter("node", "'' is no name of a node")
    return text("node", value)


def queue(value: object) -> str:
    """A name that a queue can have."""
    if not isinstance(value, str) or not QUEUE_NAME.fullmatch(value):
        raise InvalidFilter("queue", f"{quoted(value)} is not 1 to 200 of A-Z a-z 0-9 - + / ; . $ _ ( ) : @")
    return value


def search(value: object) -> str:
    """A text to search for, which is not empty."""
    if not isinstance(value, str) or not value:
        raise InvalidFilter("search", f"{quoted(value)} is no text to search for")
    return searchable("search", value)


def cursor(value: object) -> str | None:
    """The cursor of a page; whether it is one, its filter tells."""
    if value is not None and not (isinstance(value, str) and len(value) <= MAX_CURSOR):
        raise InvalidFilter("after", f"{quoted(value)} is no cursor")
    return value


def id_cursor(value: object, pages: str) -> int | None:
    """The cursor of a page that is the id of its last row."""
    text = cursor(value)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise InvalidFilter("after", f"this is no cursor of a page of {pages}; leave it out to begin anew")
    return min(int(text), MAX_ID)


def idempotency_key(value: object) -> str:
    """A text that is not empty, and not a document."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_IDEMPOTENCY_KEY or not value.isprintable():
        problem = f"{quoted(value)} is not 1 to {MAX_IDEMPOTENCY_KEY} printable characters, such as a UUID"
        raise InvalidFilter("idempotency_key", problem)
    return value


def reason(value: object) -> str:
    """Text for people, of any length: it is truncated where it is stored."""
    if not isinstance(value, str):
        raise InvalidFilter("reason", f"{quoted(value)} is not text")
    return value


def number(name: str, value: object, low: int, high: int = MAX_ID) -> int:
    """A whole number of a range."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidFilter(name, f"{quoted(value)} is not a number from {low} to {high}")
    return value


def task_id(value: object) -> int:
    """Any whole number, since a wrong one finds no task."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidFilter("task", f"{quoted(value)} is not a task's id")
    return value


def time_span(name: str, duration: str | float, low: float, high: float) -> float:
    """The seconds of a duration of a range, of seconds."""
    try:
        found = parse_duration(duration)
    except ValueError as error:
        raise InvalidFilter(name, str(error)) from None
    if not low <= found <= high:
        allowed = f"{format_duration(low)} to {format_duration(high)}"
        raise InvalidFilter(name, f"{quoted(duration)} is not from {allowed}")
    return found


def seconds(option: str, duration: str | float) -> float:
    """The seconds of a duration; raises `InvalidTask`."""
    try:
        return parse_duration(duration)
    except ValueError as error:
        raise InvalidTask(option, str(error)) from None
