"""Limits as values: how many tasks of a queue, or of a key, may run at once, and how many may start in a period."""

from __future__ import annotations

import math
import re
from typing import Final

import msgspec

from peerd.domain.duration import format_duration, parse_duration
from peerd.domain.errors import InvalidLimit, InvalidTask
from peerd.domain.quoting import quoted
from peerd.domain.task import EACH_KEY, QUEUE_NAME, SPAN_LIMIT, check_limit_key

WHOLE_QUEUE: Final = ""
"""What stands in the place of a key in a limit of the queue as a whole."""
MAX_COUNT: Final = 2**31 - 1
"""What a column of the type INTEGER holds at the most on MySQL and PostgreSQL."""
MIN_PERIOD: Final = 0.001
"""Seconds; SQLite's clock tells no shorter ones apart."""
_TEXT: Final = re.compile(r" *([0-9]{1,10}) */ *(.*)")
_UNITS: Final = ("ms", "s", "m", "h", "d", "w")


class Rate(msgspec.Struct, frozen=True):
    """So many starts in any span of a period.

    Args:
        starts: 1 to 2³¹ - 1.
        period: seconds, from a thousandth to ten years.

    Raises:
        InvalidLimit: one of them is out of its range.

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
        """A rate from text: starts, a slash, and a period, of which the number may be left out when it is 1.

        Raises:
            InvalidLimit: it is none.

        >>> Rate.parse("100/1m"), Rate.parse("5/s"), Rate.parse("10/30s")
        (Rate(starts=100, period=60.0), Rate(starts=5, period=1.0), Rate(starts=10, period=30.0))
        """
        if isinstance(value, Rate):
            return value
        found = _TEXT.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            raise _not_a_rate(value)
        starts, period = found.groups()
        try:
            seconds = parse_duration(f"1{period}" if period in _UNITS else period)
        except ValueError:
            raise _not_a_rate(value) from None
        return cls(int(starts), seconds)

    def __str__(self) -> str:
        """The text from which `parse` makes the same rate."""
        period = format_duration(self.period)
        return f"{self.starts}/{period if parse_duration(period) == self.period else self.period}"


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit of one queue.

    Args:
        queue: its name.
        key: the key whose tasks it is for; ``""``: all tasks of the queue; ``"*"``: those of each key that has no limit
            of its own.
        running: tasks at once, in the whole cluster; 0 stops them. None: as many as there are.
        rate: starts in a period; None: any number.

    Raises:
        InvalidLimit: one of them is wrong, or it would limit nothing.

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
        """Whether it is for each key of the queue."""
        return self.key == EACH_KEY


def check_limit_target(queue: object, key: object) -> None:
    """Refuse what no limit can be of.

    Raises:
        InvalidLimit: no queue can have this name, or no task this key.
    """
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
    """Refuse what no column holds.

    Raises:
        InvalidLimit: it is no whole number from ``least`` to 2³¹ - 1.
    """
    if isinstance(count, bool) or not isinstance(count, int) or not least <= count <= MAX_COUNT:
        raise InvalidLimit(field, f"{quoted(count)} is not a number of {what} from {least} to {MAX_COUNT}")


def parse_limit_columns(running: object, starts: object, period: object) -> tuple[int | None, int | None, float | None]:
    """What a row means that somebody's SQL has written; what is no number there limits nothing.

    PostgreSQL has NaN and infinity, SQLite keeps a text in any column, and all have periods that no clock can count.

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


def _not_a_rate(value: object) -> InvalidLimit:
    return InvalidLimit(
        "rate", f"{quoted(value)} is not a rate: write starts/period, such as '100/1m', '5/s', '10/30s'"
    )
