"""Conditions on columns of tasks, as text: ``priority>=20``, ``error~timeout``, ``created_at>-1h``."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec

from peerd.domain.errors import InvalidFilter
from peerd.domain.lifecycle import Status
from peerd.domain.quoting import quoted
from peerd.domain.task import EARLIEST, LATEST, SPAN_LIMIT
from peerd.domain.units import parse_duration

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "~"]

TEXT_COLUMNS: Final = (
    *("queue", "name", "body", "unique_key", "limit_key", "progress_note", "result", "error", "trace_context"),
)
INTEGER_COLUMNS: Final = (
    *(
        "id",
        "priority",
        "attempts",
        "max_attempts",
        "failures",
        "crashes",
        "node_id",
        "lease",
        "worker_node_id",
        "process_id",
    ),
    *("ttr", "delay", "reserves", "timeouts", "releases", "buries", "kicks", "bulk_id"),
)
NUMBER_COLUMNS: Final = ("timeout", "progress")
TIME_COLUMNS: Final = (
    *("start_at", "finish_at", "worker_started_at", "checked_at", "finished_at", "created_at", "updated_at"),
    "deadline_at",
)
COLUMNS: Final = ("status", *TEXT_COLUMNS, *INTEGER_COLUMNS, *NUMBER_COLUMNS, *TIME_COLUMNS)
MOST_CONDITIONS: Final = 20
"""Conditions of one filter."""
MAX_TEXT: Final = 1_000
"""Characters of a text that is compared or searched for."""

_CONDITION: Final = re.compile(r"\s*([a-z_]+)\s*(!=|<=|>=|=|<|>|~)\s*(.*)", re.DOTALL)


class TimeFromNow(msgspec.Struct, frozen=True):
    """A time as seconds from now, by the database's clock; negative ones are past."""

    seconds: float


class ColumnCondition(msgspec.Struct, frozen=True):
    """A comparison of a column with a value; None is null."""

    column: str
    operator: Operator
    value: str | int | float | datetime | TimeFromNow | None


def parse_condition(text: object) -> ColumnCondition:
    """A condition from its text: a column, an operator, a value.

    Operators are ``= != < <= > >=``, and ``~``, which finds a part of a text in any case. The value of a time is
    ISO 8601 with its zone, or a duration before (``-1h``) or after (``+1h``) now; ``null`` is no value.

    Raises:
        InvalidFilter: the error says which columns, operators or values there are.

    >>> parse_condition("priority >= 20")
    ColumnCondition(column='priority', operator='>=', value=20)
    >>> parse_condition("error~timed out").value, parse_condition("finished_at>-1h").value
    ('timed out', TimeFromNow(seconds=-3600.0))
    >>> parse_condition("node_id=null").value is None
    True
    """
    if not isinstance(text, str) or (match := _CONDITION.fullmatch(text)) is None:
        raise InvalidFilter("where", f"{quoted(text)} is no condition; write for example priority>=20 or error~timeout")
    column, operator, written = match[1], match[2], match[3].strip()
    if column not in COLUMNS:
        raise InvalidFilter("where", f"there is no column {quoted(column)}; there are {', '.join(COLUMNS)}")
    if written == "null":
        if operator not in {"=", "!="}:
            raise InvalidFilter("where", f"{column} can be = null or != null, not {operator} null")
        return ColumnCondition(column, operator, None)  # type: ignore[arg-type]  # of the pattern
    _check_operator(column, operator)
    return ColumnCondition(column, operator, _parse_value(column, written))  # type: ignore[arg-type]  # of the pattern


def _check_operator(column: str, operator: str) -> None:
    if operator == "~" and column not in TEXT_COLUMNS:
        raise InvalidFilter("where", f"{column} is no text, in which ~ could search; use = != < <= > >=")
    if operator not in {"=", "!="} and column == "status":
        raise InvalidFilter("where", f"a status is equal (=) or not (!=), not {operator}")


def _parse_value(column: str, written: str) -> str | int | float | datetime | TimeFromNow:
    if column == "status":
        if written not in tuple(Status):
            raise InvalidFilter("where", f"status: {quoted(written)} is none of {', '.join(Status)}")
        return written
    if column in TEXT_COLUMNS:
        return searchable(column, written)
    if column in TIME_COLUMNS:
        return _parse_time(column, written)
    return _parse_number(column, written)


def searchable(name: str, text: str) -> str:
    """A text that a database can compare; raises `InvalidFilter`."""
    if len(text) > MAX_TEXT:
        raise InvalidFilter(name, f"{len(text)} characters are more than {MAX_TEXT}")
    if "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidFilter(name, "holds a NUL character, or half of a surrogate pair, which no column can hold")
    return text


def _parse_number(column: str, written: str) -> int | float:
    is_whole = column in INTEGER_COLUMNS
    try:
        value: int | float = int(written) if is_whole and len(written) <= 20 and written.isascii() else float(written)
    except ValueError:
        value = math.nan
    if not (-(2**63) <= value < 2**63) or is_whole != isinstance(value, int):
        raise InvalidFilter("where", f"{column}: {quoted(written)} is not a {'whole ' if is_whole else ''}number")
    return value


def _parse_time(column: str, written: str) -> datetime | TimeFromNow:
    if written[:1] in {"-", "+"}:
        try:
            seconds = parse_duration(written[1:])
        except ValueError as error:
            raise InvalidFilter("where", f"{column}: {error}") from None
        if seconds >= SPAN_LIMIT:
            raise InvalidFilter("where", f"{column}: {quoted(written)} is ten years from now, or more")
        return TimeFromNow(-seconds if written[0] == "-" else seconds)
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        problem = "is neither a time such as 2026-05-01T12:00:00Z nor a duration from now such as -1h"
        raise InvalidFilter("where", f"{column}: {quoted(written)} {problem}") from None
    if moment.tzinfo is None:
        raise InvalidFilter("where", f"{column}: {quoted(written)} has no time zone; append Z or +02:00")
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:
        moment = LATEST
    if not EARLIEST <= moment < LATEST:
        problem = f"is not between {EARLIEST:%Y-%m-%d} and {LATEST:%Y-%m-%d}"
        raise InvalidFilter("where", f"{column}: {quoted(written)} {problem}")
    return moment


def parse_conditions(texts: object) -> tuple[ColumnCondition, ...]:
    """All conditions of a filter; raises `InvalidFilter` for a wrong one, and for more than `MOST_CONDITIONS`."""
    if isinstance(texts, str) or not isinstance(texts, list | tuple):
        raise InvalidFilter("where", f"{quoted(texts)} is not a list of conditions")
    if len(texts) > MOST_CONDITIONS:
        raise InvalidFilter("where", f"{len(texts)} conditions are more than {MOST_CONDITIONS}")
    return tuple(map(parse_condition, texts))


def parse_status(word: str) -> Status:
    """The status of this name; raises `InvalidFilter`.

    >>> parse_status("dead")
    <Status.DEAD: 'dead'>
    """
    try:
        return Status(word)
    except (ValueError, TypeError, RecursionError):  # RecursionError: a deep object, which Enum quotes
        raise InvalidFilter("status", f"{quoted(word)} is none of {', '.join(Status)}") from None
