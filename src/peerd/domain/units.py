"""Durations and sizes in configuration and options: a number, or text with units, such as "1h30m" and "500MB"."""

from __future__ import annotations

import math
import re

from peerd.domain.quoting import quoted

_SECONDS_OF = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1, "ms": 0.001}
_PART = re.compile(r"(\d+(?:\.\d+)?) *(ms|[wdhms])")
_DURATION = re.compile(rf"(?:{_PART.pattern} *)+")


def parse_duration(value: str | float) -> float:
    """Seconds from a number of seconds, or from text of parts in w, d, h, m, s and ms, the larger first.

    Raises ValueError for anything else, for negative and for infinite durations.

    >>> parse_duration("1h30m"), parse_duration("500ms"), parse_duration(2), parse_duration("3d")
    (5400.0, 0.5, 2.0, 259200.0)
    """
    seconds = _parse_seconds(value)
    if seconds is None or not 0 <= seconds < math.inf:
        raise ValueError(
            f"{quoted(value)} is not a duration: give seconds, or text such as '500ms', '10s', '1h30m', '3d'"
        )
    return seconds


def _parse_seconds(value: object) -> float | None:
    if isinstance(value, str):
        value = value.strip()
        if re.fullmatch(r"\d+(?:\.\d+)?", value):
            return float(value)
        parts = _PART.findall(value) if _DURATION.fullmatch(value) else []
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


_UNITS = ("", "K", "M", "G", "T", "P")
_BYTES_OF: dict[str, int] = {"": 1, "B": 1}
for _power, _unit in enumerate(_UNITS[1:], start=1):
    _BYTES_OF |= {_unit: 1000**_power, f"{_unit}B": 1000**_power, f"{_unit}IB": 1024**_power}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) *([A-Za-z]*)")


def parse_size(value: str | int) -> int:
    """Bytes from a number of bytes, or from text with a unit: kB, MB, GB (thousands) or KiB, MiB, GiB (1024).

    Raises ValueError for anything else.

    >>> parse_size("500MB"), parse_size("1.5 GiB"), parse_size(4096)
    (500000000, 1610612736, 4096)
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    size = float(found[1]) * _BYTES_OF.get(found[2].upper(), math.nan) if found else math.nan
    if not math.isfinite(size):
        raise ValueError(f"{quoted(value)} is not a size: give bytes, or text such as '500MB', '1.5GiB'")
    return round(size)


def format_size(size: int) -> str:
    """The text of a size, in thousands, with three digits.

    >>> format_size(0), format_size(999_999), format_size(1_610_612_736)
    ('0 B', '1 MB', '1.61 GB')
    """
    number, power = float(size), 0
    while number >= 999.5 and power < len(_UNITS) - 1:
        number, power = number / 1000, power + 1
    return f"{number:.3g} {_UNITS[power].replace('K', 'k')}B"
