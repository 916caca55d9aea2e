"""A walk along the fine rows of a time series, which makes coarser ones of each span that is over.

A pass begins one span before the end of the one before it, because a fine row may come late; once a day it begins with
the oldest row.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy.engine import Connection

from peerd.store.statistics.rollup import RollupStep
from peerd.store.statistics.steps import SETTLED_AFTER, bucket_start

RESTART_AFTER: Final = 86_400.0
"""Seconds between two passes from the oldest row."""
BEGINNING: Final = datetime(1970, 1, 2, tzinfo=UTC)
"""Before every row."""

RollUp = Callable[[Connection, int, datetime, float], RollupStep]


class SeriesWalk:
    """The walk that makes the rows of one step.

    Args:
        step: seconds of the coarse spans.
        roll_up: does the next span.
        kept: seconds for which the fine rows are kept.
        clock: monotonic seconds.
    """

    def __init__(self, step: int, roll_up: RollUp, kept: float, clock: Callable[[], float]) -> None:
        self._step = step
        self._roll_up = roll_up
        self._kept = kept
        self._clock = clock
        self._began_at = clock()
        self._done_until = BEGINNING
        self._place: datetime | None = None
        """Where the pass goes on; None between two passes."""

    def due_at(self, newest: datetime | None) -> datetime | None:
        """When the next pass is due, if the newest fine row is of this moment; None: there is nothing to do."""
        if newest is None or newest < self._done_until:
            return None
        start = bucket_start(newest, self._step)
        is_behind = self._done_until < start
        return self._done_until if is_behind else start + timedelta(seconds=self._step + SETTLED_AFTER[self._step])

    def run(self, connection: Connection) -> RollupStep:
        """Do the next span."""
        if self._place is None and self._clock() - self._began_at >= RESTART_AFTER:
            self._began_at, self._done_until = self._clock(), BEGINNING
        since = self._done_until - timedelta(seconds=self._step) if self._place is None else self._place
        return self._roll_up(connection, self._step, since, self._kept)

    def record(self, made: RollupStep) -> bool:
        """Go on from a span that was committed; return whether there are more."""
        self._place = made.after
        if made.done_until is not None:
            self._done_until = max(self._done_until, made.done_until)
        return made.after is not None
