"""Durations in configuration and options: a number of seconds, or text such as "1h30m"."""

from __future__ import annotations

import math
import re

from peerd.domain.quoting import quoted

_SECONDS_OF = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1, "ms": 0.001}
_PART = re.compile(r"(\d+(?:\.\d+)?) *(ms|[wdhms])")
_TEXT = re.compile(rf"(?:{_PART.pattern} *)+")


def parse_duration(value: str | float) -> float:
    """Seconds from a number of seconds, or from text of parts in w, d, h, m, s and ms, the larger first.

    Raises ValueError for anything else, for negative and for infinite durations.

    >>> parse_duration("1h30m"), parse_duration("500ms"), parse_duration(2), parse_duration("3d")
    (5400.0, 0.5, 2.0, 259200.0)
    """
    seconds = _parse(value)
    if seconds is None or not 0 <= seconds < math.inf:
        raise ValueError(
            f"{quoted(value)} is not a duration: give seconds, or text such as '500ms', '10s', '1h30m', '3d'"
        )
    return seconds


def _parse(value: object) -> float | None:
    if isinstance(value, str):
        value = value.strip()
        if re.fullmatch(r"\d+(?:\.\d+)?", value):
            return float(value)
        parts = _PART.findall(value) if _TEXT.fullmatch(value) else []
        units = [unit for _, unit in parts]
        in_order = bool(units) and units == [unit for unit in _SECONDS_OF if unit in units]
        return math.fsum(float(number) * _SECONDS_OF[unit] for number, unit in parts) if in_order else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def format_duration(seconds: float) -> str:
    """The text of a duration in its two largest parts, exact below an hour to the millisecond.

    >>> format_duration(5400), format_duration(0.5), format_duration(90061), format_duration(61.25)
    ('1h30m', '500ms', '1d1h', '1m1.25s')
    """
    if seconds < 0:
        return "-" + format_duration(-seconds)
    milliseconds = round(seconds * 1000)
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d" + (f"{hours}h" if hours else "")
    if hours:
        return f"{hours}h" + (f"{minutes}m" if minutes else "")
    return (f"{minutes}m" if minutes else "") + (f"{rest / 1000:g}s" if rest or not minutes else "")
