"""Walks along the done tasks, each of which deletes those of one age; see `peerd.store.maintenance.history`.

A walk goes on from where it was, so a task is read once for each age, however many tasks are kept. It stays behind what
may still appear: tasks whose end has not been committed yet, and tasks that were locked. What appears behind it
nevertheless, such as a time that was written by hand, is found when it begins anew, `RESTART_AFTER` seconds later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sqlalchemy.engine import Connection

from peerd.config.settings import QueueSettings
from peerd.store.maintenance.history import HistoryAge, HistoryPlace, HistoryStep, ages_of, purge_step

RESTART_AFTER: Final = 86_400.0
"""Seconds between two walks from the beginning."""


class HistoryWalk:
    """The walk of one age. The first and each later pass goes up to the tasks that are young enough to stay.

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
