"""What is given to an action or a question, checked before a database sees it; each refuses in its own words."""

from __future__ import annotations

from peerd.domain.errors import InvalidTask, PeerdError
from peerd.domain.quoting import quoted
from peerd.domain.task import NAME_LIMIT, QUEUE_NAME, check_text

MAX_ID = 2**63 - 1


class InvalidFilter(PeerdError, ValueError):
    """A filter, a name or an id that nothing can have.

    Args:
        name: the filter's name.
        problem: what is wrong with it, and what is allowed.
    """

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")


def text(name: str, value: object, limit: int = NAME_LIMIT) -> str:
    """A text that could stand in the table.

    Raises:
        InvalidFilter: it could not.
    """
    if not isinstance(value, str):
        raise InvalidFilter(name, f"{quoted(value)} is not text")
    try:
        check_text(name, value, limit)
    except InvalidTask as error:
        raise InvalidFilter(name, error.problem) from None
    return value


def text_or_none(name: str, value: object) -> str | None:
    """The same, where it may be left out."""
    return None if value is None else text(name, value)


def queue(value: object) -> str:
    """A name that a queue can have.

    Raises:
        InvalidFilter: none can.
    """
    if not isinstance(value, str) or not QUEUE_NAME.fullmatch(value):
        raise InvalidFilter("queue", f"{quoted(value)} is not 1 to 200 of A-Z a-z 0-9 - + / ; . $ _ ( ) : @")
    return value


def reason(value: object) -> str:
    """Words for people, of any length: they are cut and mended where they are stored.

    Raises:
        InvalidFilter: it is no text.
    """
    if not isinstance(value, str):
        raise InvalidFilter("reason", f"{quoted(value)} is not text")
    return value


def number(name: str, value: object, low: int, high: int) -> int:
    """A whole number of a range.

    Raises:
        InvalidFilter: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidFilter(name, f"{quoted(value)} is not a number from {low} to {high}")
    return value


def task_id(value: object) -> int:
    """An id that a task may have had; any whole number will do, since none is found by a wrong one.

    Raises:
        InvalidFilter: it is no whole number.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidFilter("task", f"{quoted(value)} is not a task's id")
    return value
