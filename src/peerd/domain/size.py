"""Sizes in configuration and options: a number of bytes, or text such as "500MB"."""

from __future__ import annotations

import math
import re

from peerd.domain.quoting import quoted

_UNITS = ("", "K", "M", "G", "T", "P")
_BYTES_OF: dict[str, int] = {"": 1, "B": 1}
for _power, _unit in enumerate(_UNITS[1:], start=1):
    _BYTES_OF |= {_unit: 1000**_power, f"{_unit}B": 1000**_power, f"{_unit}IB": 1024**_power}
_TEXT = re.compile(r"(\d+(?:\.\d+)?) *([A-Za-z]*)")


def parse_size(value: str | int) -> int:
    """Bytes from a number of bytes, or from text with a unit: kB, MB, GB (thousands) or KiB, MiB, GiB (1024).

    Raises ValueError for anything else.

    >>> parse_size("500MB"), parse_size("1.5 GiB"), parse_size(4096)
    (500000000, 1610612736, 4096)
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    found = _TEXT.fullmatch(value.strip()) if isinstance(value, str) else None
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
