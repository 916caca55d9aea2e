"""Limits: how many tasks of a queue, or of a key, may run at once, and how many may start in a period. Pure values."""

from __future__ import annotations

import math
import re
from typing import Final

import msgspec

from peerd.domain.errors import InvalidLimit, InvalidTask
from peerd.domain.quoting import quoted
from peerd.domain.task import EACH_KEY, QUEUE_NAME, SPAN_LIMIT, check_limit_key
from peerd.domain.units import format_duration, parse_duration

WHOLE_QUEUE: Final = ""
"""The key of a limit of the queue as a whole."""
MAX_COUNT: Final = 2**31 - 1
"""The maximum of INTEGER columns on MySQL and PostgreSQL."""
MIN_PERIOD: Final = 0.001
"""Seconds; the resolution of SQLite's clock."""
_TEXT: Final = re.compile(r" *([0-9]{1,10}) */ *(.*)")
_UNITS: Final = ("ms", "s", "m", "h", "d", "w")


class Rate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number of starts in any span of a period. Raises InvalidLimit for values out of their range.

    Args:
        starts: 1 to 2³¹ - 1.
        period: seconds, from a thousandth to ten years.

    >>> str(Rate(100, 60.0)), str(Rate(5, 1.0)), str(Rate(10, 0.0015))
    ('100/1m', '5/1s', '10/0.0015')
    """

    starts: int
    period: float

    def __post_init__(self) -> None:
        check_count("rate", "starts", self.starts, least=1)
        if isinstance(self.period, bool) or not isinstance(self.period, int | float):
            raise InvalidLimit("rate", f"{quoted(self.period)} is not a number of seconds")
        if not MIN_PERIOD <= self.period < SPAN_LIMIT:
            raise InvalidLimit("rate", f"{quoted(self.period)} s is not a period from 0.001 s to ten years")

    @classmethod
    def parse(cls, value: object) -> Rate:
        """A rate from text: starts, a slash, and a period, whose number may be omitted when it is 1.

        Raises InvalidLimit for anything else.

        >>> Rate.parse("100/1m"), Rate.parse("5/s"), Rate.parse("10/30s")
        (Rate(starts=100, period=60.0), Rate(starts=5, period=1.0), Rate(starts=10, period=30.0))
        """
        if isinstance(value, Rate):
            return value
        found = _TEXT.fullmatch(value) if isinstance(value, str) else None
        starts, period = found.groups() if found else ("0", "none")
        try:
            seconds = parse_duration(f"1{period}" if period in _UNITS else period)
        except ValueError:
            remedy = "write starts/period, such as '100/1m', '5/s', '10/30s'"
            raise InvalidLimit("rate", f"{quoted(value)} is not a rate: {remedy}") from None
        return cls(int(starts), seconds)

    def __str__(self) -> str:
        period = format_duration(self.period)
        return f"{self.starts}/{period if parse_duration(period) == self.period else self.period}"


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit of one queue.

    Args:
        queue: its name.
        key: the tasks with this key; ``""``: all tasks of the queue; ``"*"``: those of each key without a limit of its
            own.
        running: tasks at once, in the whole cluster; 0 stops them. None: any number.
        rate: starts in a period; None: any number.

    Raises:
        InvalidLimit: a value is wrong, or neither is given.

    >>> Limit(queue="uploads", key="*", running=3).each_key
    True
    >>> Limit(queue="uploads")
    Traceback (most recent call last):
    peerd.domain.errors.InvalidLimit: running: give running, rate or both; to take a limit away, remove it
    """

    queue: str
    key: str = WHOLE_QUEUE
    running: int | None = None
    rate: Rate | None = None

    def __post_init__(self) -> None:
        check_limit_target(self.queue, self.key)
        if self.running is None and self.rate is None:
            raise InvalidLimit("running", "give running, rate or both; to take a limit away, remove it")
        if self.running is not None:
            check_count("running", "tasks at once", self.running, least=0)

    @property
    def each_key(self) -> bool:
        """Whether it applies to each key of the queue."""
        return self.key == EACH_KEY


def check_limit_target(queue: object, key: object) -> None:
    """Raise InvalidLimit for a name that no queue can have, or a key that no task can have."""
    if not isinstance(queue, str) or not QUEUE_NAME.fullmatch(queue):
        raise InvalidLimit("queue", f"{quoted(queue)} is not 1 to 200 of A-Z a-z 0-9 - + / ; . $ _ ( ) : @")
    if not isinstance(key, str):
        raise InvalidLimit("key", f"{quoted(key)} is not text")
    if key in (WHOLE_QUEUE, EACH_KEY):
        return
    try:
        check_limit_key(key)
    except InvalidTask as error:
        raise InvalidLimit("key", error.problem) from None


def check_count(field: str, what: str, count: object, *, least: int) -> None:
    """Raise InvalidLimit for anything but a whole number from ``least`` to 2³¹ - 1."""
    if isinstance(count, bool) or not isinstance(count, int) or not least <= count <= MAX_COUNT:
        raise InvalidLimit(field, f"{quoted(count)} is not a number of {what} from {least} to {MAX_COUNT}")


def parse_limit_columns(running: object, starts: object, period: object) -> tuple[int | None, int | None, float | None]:
    """The limits in a row, which may have been written by a user's SQL; a value that is no number limits nothing.

    PostgreSQL has NaN and infinity, SQLite keeps a text in any column, and a period may be longer than a clock counts.

    >>> parse = parse_limit_columns
    >>> parse(3, 100, 60.0), parse(None, 5, 1e300), parse("x", 5, float("nan"))
    ((3, 100, 60.0), (None, 5, 315360000.0), (None, None, None))
    """
    limited, rate, seconds = (_number(value) for value in (running, starts, period))
    if rate is None or seconds is None:
        rate = seconds = None
    return _whole(limited), _whole(rate), None if seconds is None else min(seconds, SPAN_LIMIT)


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not math.isnan(value) else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(min(value, MAX_COUNT))
