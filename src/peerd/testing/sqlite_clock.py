"""SQLite's date functions, with a clock of ours for 'now'.

Only what asks for the present is answered here; everything else is computed by a second connection, in memory, which
has the built-in functions still. What the tables' CHECKs ask for each row written, and what each claim asks, is
answered without it: a simulation asks millions of times.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import Any, Final, Protocol

from peerd.store.schema.types import SQLITE_TIME_FORMAT

Value = str | int | float | bytes | None

NOW_VALUES: Final = ("now", "subsec", "subsecond")
"""Time values that mean the present; the last two do from SQLite 3.42 on."""
CURRENT_FUNCTIONS: Final = {"current_timestamp": "datetime", "current_date": "date", "current_time": "time"}
_SECONDS: Final = re.compile(r"([+-]?\d{1,9}(?:\.\d+)?) seconds")


class ClockMoment:
    """What a clock shows, as the functions want it."""

    __slots__ = ("at", "later", "text")

    def __init__(self, at: datetime) -> None:
        self.at = at
        self.text = format_moment(at)
        self.later: dict[str, str] = {}
        """What was asked already: modifiers, and the times to which they lead."""


class ClockWithMoment(Protocol):
    """A clock."""

    moment: ClockMoment


class BuiltinDateFunctions:
    """SQLite's own date functions, by a connection of their own."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        self.call = lru_cache(maxsize=4096, typed=True)(self._call)

    def _call(self, function: str, *args: Value) -> Value:
        placeholders = ", ".join("?" for _ in args)
        answer: Value = self._connection.execute(f"SELECT {function}({placeholders})", args).fetchone()[0]
        return answer

    def has(self, function: str) -> bool:
        """Whether this version of SQLite has the function."""
        try:
            self._call(function, "2026-01-01")
        except sqlite3.OperationalError:
            return False
        return True

    def close(self) -> None:
        """Close its connection."""
        self._connection.close()


def replace_functions(connection: sqlite3.Connection, clock: ClockWithMoment) -> BuiltinDateFunctions:
    """Let the date functions of a connection read this clock.

    Returns:
        what computes the rest; whoever closes the connection closes it too.
    """
    builtin = BuiltinDateFunctions()
    replace = partial(connection.create_function, deterministic=True)  # else a CHECK could not call them
    for narg, function in _strftime(clock, builtin).items():
        replace("strftime", narg, function)
    for name in ("date", "time", "datetime", "julianday", "unixepoch"):
        if builtin.has(name):
            replace(name, -1, _general(name, 0, clock, builtin))
    for name, same_as in CURRENT_FUNCTIONS.items():
        replace(name, 0, _general(same_as, 0, clock, builtin))
    return builtin


def format_moment(moment: datetime) -> str:
    """A moment in UTC, as SQLite writes it.

    >>> format_moment(datetime(2026, 1, 1, 9, 30, microsecond=7999))
    '2026-01-01 09:30:00.007'
    """
    return moment.isoformat(" ", "milliseconds")[:23]


def _general(function: str, index: int, clock: ClockWithMoment, builtin: BuiltinDateFunctions) -> Callable[..., Value]:
    """A function whose argument at ``index`` is the time; without it, the present is meant."""
    means_now = {word for word in NOW_VALUES if builtin.call("julianday", word) is not None}

    def answer(*args: Any) -> Value:
        if len(args) == index:
            args = (*args, "now")
        if len(args) > index and isinstance(args[index], str) and args[index].lower() in means_now:
            args = (*args[:index], clock.moment.text, *args[index + 1 :])
        return builtin.call(function, *args)

    return answer


def _strftime(clock: ClockWithMoment, builtin: BuiltinDateFunctions) -> dict[int, Callable[..., Value]]:
    """The forms of strftime, by their number of arguments: our statements' own are answered at once."""
    general = _general("strftime", 1, clock, builtin)

    def of_value(form: Value, value: Value) -> Value:
        if form == SQLITE_TIME_FORMAT:
            if value in ("now", clock.moment.text):
                return clock.moment.text
            if _is_in_form(value):
                return value
        return general(form, value)

    def modified(form: Value, value: Value, modifier: Value) -> Value:
        if value != "now" or form != SQLITE_TIME_FORMAT or not isinstance(modifier, str):
            return general(form, value, modifier)
        moment = clock.moment
        known = moment.later.get(modifier)
        if known is None:
            known = _seconds_later(moment, modifier)
            if known is None:
                return general(form, value, modifier)
            moment.later[modifier] = known
        return known

    return {-1: general, 2: of_value, 3: modified}


def _is_in_form(value: Value) -> bool:
    """Whether a value is a time in our one form, so that formatting it so changes nothing."""
    try:
        return isinstance(value, str) and format_moment(datetime.fromisoformat(value)) == value
    except ValueError:
        return False


def _seconds_later(moment: ClockMoment, modifier: str) -> str | None:
    """The time to which a modifier of seconds leads; None where it is another one.

    SQLite counts in milliseconds, and rounds half a millisecond away from zero.
    """
    found = _SECONDS.fullmatch(modifier)
    if found is None:
        return None
    seconds = float(found[1])
    milliseconds = int(seconds * 1000.0 + (-0.5 if seconds < 0 else 0.5))
    try:
        return format_moment(moment.at + timedelta(milliseconds=milliseconds))
    except OverflowError:
        return None
