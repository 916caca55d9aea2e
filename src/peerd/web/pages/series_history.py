"""Time series that charts have read: what is past does not change, so that only their ends are read again.

A live chart of a week would otherwise sum the figures of a week every other second. What is written late, because the
database was away, appears with the next whole reading.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from peerd.domain.errors import InvalidFilter
from peerd.operate.figures import SeriesPoint
from peerd.store.time_series import bucket_start, step_for
from peerd.web.pages.charts import MOST_LINES, label_of

RECENT: Final = 3
"""Points at the end that are read again: processes may still write to them."""
FRESH_PARTS: Final = 60
"""The end is read again after such a part of the seconds between two points: each second, ten seconds or minute."""
WHOLE_AFTER: Final = 10
"""Points, or `WHOLE_AFTER_SECONDS`, after which a series is read whole again."""
WHOLE_AFTER_SECONDS: Final = 3_600.0
MOST_SERIES: Final = 200

Load = Callable[[float, int, int | None], Awaitable[Sequence[SeriesPoint]]]
"""Reads a series: of the last seconds, with the seconds between two points, and of how many groups at the most."""


class _Series(msgspec.Struct, kw_only=True):
    points: Sequence[SeriesPoint]
    groups: set[str]
    read_at: float
    read_whole_at: float


class SeriesHistory:
    """The series of all charts, of the groups with the most attempts, and as far back as they are shown.

    Args:
        clock: seconds; a monotonic one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._series: OrderedDict[Hashable, _Series] = OrderedDict()

    async def read(self, key: Hashable, seconds: float, now: datetime, load: Load) -> Sequence[SeriesPoint]:
        """The points of the last seconds.

        Args:
            key: what it is a series of, and who may see it.
            seconds: of time.
            now: the database's time.
            load: reads it, or its end.
        """
        step, known = step_for(seconds), self._series.get(key)
        if known is not None:
            self._series.move_to_end(key)
        if known is None or self._is_due(known, step) or not await self._read_end(known, seconds, now, load):
            known = await self._read_whole(key, seconds, load)
        return known.points

    def _is_due(self, known: _Series, step: int) -> bool:
        return self._clock() - known.read_whole_at > min(WHOLE_AFTER * step, WHOLE_AFTER_SECONDS)

    async def _read_whole(self, key: Hashable, seconds: float, load: Load) -> _Series:
        began = self._clock()
        points = await load(seconds, step_for(seconds), MOST_LINES)
        groups = {label_of(point) for point in points}
        read = _Series(points=points, groups=groups, read_at=began, read_whole_at=began)
        self._series[key] = read
        while len(self._series) > MOST_SERIES:
            self._series.popitem(last=False)
        return read

    async def _read_end(self, known: _Series, seconds: float, now: datetime, load: Load) -> bool:
        """Replace the end, if it is not fresh; whether that was possible."""
        began, step = self._clock(), step_for(seconds)
        if began - known.read_at < step / FRESH_PARTS:
            return True
        length = RECENT * step + began - known.read_at
        try:
            fresh = await load(length, step, None)
        except InvalidFilter:  # more groups than may be read at once
            return False
        # The reading may have begun in the next bucket, and then without the first of these.
        begin = bucket_start(now - timedelta(seconds=length), step) + timedelta(seconds=step)
        oldest = now - timedelta(seconds=seconds + step)
        kept = [point for point in known.points if oldest <= point.at < begin]
        known.points = [*kept, *(point for point in fresh if point.at >= begin and _is_shown(known, point))]
        known.read_at = began
        return True


def _is_shown(known: _Series, point: SeriesPoint) -> bool:
    """Whether its group is one of the greatest; a new one is, while there is room for its line."""
    label = label_of(point)
    if label not in known.groups and len(known.groups) < MOST_LINES:
        known.groups.add(label)
    return label in known.groups
