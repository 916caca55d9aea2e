"""Walks: deletes done tasks by the histories of their queues, and makes time series coarser, a part in each round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy.engine import Connection

from peerd.config.settings import QueueSettings
from peerd.store.chore_batches import HistoryAge, HistoryPlace, HistoryStep, ages_of, purge_step
from peerd.store.time_series import SETTLED_AFTER, RollupStep, bucket_start

RESTART_AFTER: Final = 86_400.0
"""Seconds between two walks from the beginning, or passes from the oldest row."""
BEGINNING: Final = datetime(1970, 1, 2, tzinfo=UTC)
"""Before every row."""


class HistoryWalk:
    """The walk along the done tasks that deletes those of one age; see `peerd.store.chore_batches`.

    The first and each later pass goes up to the tasks that are young enough to stay. A task is read once for each age,
    however many tasks are kept. A walk stays behind what may still appear: tasks whose end has not been committed yet,
    and tasks that were locked. What appears behind it nevertheless, such as a time that was written by hand, is found
    when it begins anew, `RESTART_AFTER` seconds later.

    Args:
        wanted: the tasks that it deletes.
        clock: monotonic seconds.
    """

    def __init__(self, wanted: HistoryAge, clock: Callable[[], float]) -> None:
        self.wanted = wanted
        self._clock = clock
        self._began_at = clock()
        self._next_pass: HistoryPlace | None = None
        self._place: HistoryPlace | None = None
        self._may_settle = True

    def run(self, connection: Connection, limit: int) -> HistoryStep:
        """Do the next step."""
        return purge_step(connection, self.wanted, self._place, limit)

    def record(self, step: HistoryStep, limit: int) -> bool:
        """Go on from a step that was committed; return whether this pass has more to read."""
        self._place = step.place
        if self._may_settle and step.settled is not None:
            self._next_pass = step.settled
        self._may_settle = self._may_settle and step.settled == step.place
        if step.read == limit:
            return True
        self._end_pass()
        return False

    def _end_pass(self) -> None:
        if self._clock() - self._began_at >= RESTART_AFTER:
            self._began_at, self._next_pass = self._clock(), None
        self._place, self._may_settle = self._next_pass, True


def make_walks(
    queues: Mapping[str, QueueSettings], max_completed: float, clock: Callable[[], float]
) -> list[HistoryWalk]:
    """The walks of a manager; none where no queue has a history of its own."""
    histories = {name: queue.history for name, queue in queues.items() if queue.history is not None}
    ages = ages_of(histories, max_completed)
    return [HistoryWalk(age, clock) for age in ages] if len(ages) > 1 else []


RollUp = Callable[[Connection, int, datetime, float], RollupStep]


class SeriesWalk:
    """The walk along the fine rows of a time series that makes coarser ones of each span that is over.

    A pass begins one span before the end of the one before it, because a fine row may come late; once a day it begins
    with the oldest row.

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
