"""Axes: where their marks are, and what these say."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Final

STEPS: Final = (
    60,
    120,
    300,
    600,
    900,
    1_800,
    3_600,
    7_200,
    10_800,
    21_600,
    43_200,
    86_400,
    172_800,
    604_800,
    1_209_600,
)
"""Seconds between two marks of a time axis."""


def value_marks(highest: float, most: int = 4) -> list[float]:
    """Round values from 0 to the first that is not below the highest one, at equal distances of 1, 2 or 5.

    >>> value_marks(7), value_marks(0.4), value_marks(0)
    ([0, 2, 4, 6, 8], [0.0, 0.1, 0.2, 0.3, 0.4], [0, 1])
    """
    if highest <= 0 or not math.isfinite(highest):
        return [0, 1]
    power = 10.0 ** math.floor(math.log10(highest / most))
    step = next(power * part for part in (1, 2, 5, 10) if power * part * most >= highest)
    step = int(step) if step >= 1 else step
    return [round(step * number, 12) for number in range(math.ceil(highest / step - 1e-9) + 1)]


def time_marks(begin: datetime, end: datetime, most: int = 6) -> list[datetime]:
    """Round moments in UTC within a time.

    >>> begin = datetime(2026, 11, 21, 9, 3, tzinfo=UTC)
    >>> [f"{at:%H:%M}" for at in time_marks(begin, begin + timedelta(hours=1))]
    ['09:10', '09:20', '09:30', '09:40', '09:50', '10:00']
    """
    span = max(1.0, (end - begin).total_seconds())
    step = next((step for step in STEPS if span / step <= most), STEPS[-1])
    first = math.ceil(begin.timestamp() / step) * step
    count = int((end.timestamp() - first) // step) + 1
    return [datetime.fromtimestamp(first + step * number, UTC) for number in range(max(0, count))]


def time_label(at: datetime, span: timedelta) -> str:
    """What a mark says: the time of day, or the day where marks are days apart."""
    return f"{at:%H:%M}" if span <= timedelta(days=1.5) else f"{at:%d %b}" if at.hour == 0 else f"{at:%d %b %H:%M}"
