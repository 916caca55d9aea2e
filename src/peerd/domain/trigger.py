"""The ticks of a schedule: at an interval, or by a cron expression. Ticks are instants in UTC. No clock is read.

Each tick is computed from the definition and not from the tick before it, so that ticks do not drift: an interval
counts from its anchor, an expression from the calendar of its time zone.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from peerd.domain.errors import InvalidSchedule
from peerd.domain.quoting import quoted
from peerd.domain.task import LATEST

MIN_INTERVAL: Final = 0.1
"""Seconds between two ticks."""
MINUTE: Final = timedelta(minutes=1)
MILLISECOND: Final = timedelta(milliseconds=1)
"""The resolution of every database's clock; ticks lie on whole ones."""


class Interval(msgspec.Struct, frozen=True):
    """A tick at each multiple of an interval after an anchor, the anchor excluded.

    >>> anchor = datetime(2026, 1, 1, tzinfo=UTC)
    >>> Interval(5.5).after(anchor + timedelta(seconds=12), anchor).isoformat()
    '2026-01-01T00:00:16.500000+00:00'
    """

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds >= MIN_INTERVAL:
            raise InvalidSchedule("interval", f"{self.seconds:g} s is shorter than {MIN_INTERVAL:g} s")

    @property
    def step(self) -> timedelta:
        """The interval, in whole milliseconds."""
        return round(self.seconds * 1000) * MILLISECOND

    def after(self, moment: datetime, anchor: datetime) -> datetime | None:
        """The first tick later than this; None where there is none before the end of time (2038)."""
        elapsed_steps = max((moment - anchor) // self.step, 0)
        try:
            return _within_time(anchor + (elapsed_steps + 1) * self.step)
        except OverflowError:
            return None

    def latest(self, moment: datetime, anchor: datetime) -> datetime | None:
        """The last tick that is not later than this."""
        elapsed_steps = (moment - anchor) // self.step
        return anchor + elapsed_steps * self.step if elapsed_steps > 0 else None


class Cron(msgspec.Struct, frozen=True):
    """Ticks by an expression of five fields, or of six of which the first is the seconds, in a time zone.

    Where the clocks of the zone change, Debian's cron is the model: a time that a day does not have ticks at once after
    the gap, and a time that a day has twice ticks once; an expression for every hour, or for every few minutes, ticks
    through the change.

    >>> cron = Cron("30 2 * * *", "Europe/Berlin")
    >>> cron.after(datetime(2026, 3, 28, 12, tzinfo=UTC)).isoformat()  # there is no 2:30 on the 29th
    '2026-03-29T01:00:00+00:00'
    """

    expression: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        load_time_zone(self.timezone)
        try:
            next(CronSim(self.expression, datetime(2026, 1, 1, tzinfo=UTC)))
        except (CronSimError, ValueError, RecursionError) as error:
            example = "write five fields, '0 3 * * *', or six with the seconds first, '30 0 3 * * *'"
            raise InvalidSchedule("cron", f"{quoted(self.expression)}: {str(error).lower()}; {example}") from None
        except StopIteration:
            raise InvalidSchedule("cron", f"{quoted(self.expression)} never comes") from None

    def after(self, moment: datetime, anchor: datetime | None = None) -> datetime | None:
        """As `Interval.after`."""
        return _within_time(next(self._ticks(moment), None))

    def latest(self, moment: datetime, anchor: datetime | None = None) -> datetime | None:
        """As `Interval.latest`."""
        found = next(self._ticks(moment, back=True), None)
        while found is not None and (later := self.after(found)) is not None and later <= moment:
            found = later  # in an hour that a day has twice, the reverse search skips the first one
        return found

    def _ticks(self, moment: datetime, *, back: bool = False) -> Iterator[datetime]:
        """Ticks after a moment, or back from it. CronSim gets no seconds: it follows Debian with five fields only."""
        start = (moment + (MINUTE if back else -MINUTE)).replace(second=0, microsecond=0)
        fields = " ".join(self.expression.split()[-5:])
        seconds = _seconds_of(self.expression)[:: -1 if back else 1]
        for minute in CronSim(fields, start.astimezone(load_time_zone(self.timezone)), reverse=back):
            for second in seconds:
                tick = minute.astimezone(UTC) + second
                if tick <= moment if back else tick > moment:
                    yield tick


Trigger = Interval | Cron


@cache
def load_time_zone(name: str) -> ZoneInfo:
    """A time zone; raises InvalidSchedule for one that this machine does not have."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        remedy = "write a name such as 'Europe/Berlin'; the names are those of the system's tzdata"
        raise InvalidSchedule("timezone", f"{quoted(name)} is no time zone here; {remedy}") from None


@cache
def _seconds_of(expression: str) -> tuple[timedelta, ...]:
    return tuple(
        timedelta(seconds=second) for second in sorted(CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC)).seconds)
    )


def _within_time(moment: datetime | None) -> datetime | None:
    return moment if moment is not None and moment < LATEST else None
