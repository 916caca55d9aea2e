"""Counts of the attempts that have ended in this process, and how long they waited and ran, since its start.

The time series of the database and the metrics of the node are made of it. Counts only grow; a reader keeps the last
snapshot and subtracts it.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from peerd.domain.histogram import Histogram
from peerd.runtime.observability.events import AttemptEnded, Event

MOST_HANDLERS: Final = 500
"""Handlers that are counted one by one: SQL by hand can invent any number of names."""
OTHER: Final = "(other)"
"""The name under which all further handlers of a queue are counted."""


class HandlerKey(NamedTuple):
    """A handler: the queue and the name of its tasks."""

    queue: str
    name: str


class HandlerStatistics:
    """The ended attempts of one handler.

    Attributes:
        outcomes: how many attempts had each outcome, by its label: done, failure, dead, timeout, snoozed, ….
        wait: seconds from the moment in which a task was due to that of its claim.
        run: seconds for which its handler ran.
    """

    __slots__ = ("outcomes", "run", "wait")

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.wait = Histogram()
        self.run = Histogram()

    def copy(self) -> HandlerStatistics:
        """One of its own with the same counts."""
        copied = HandlerStatistics()
        copied.outcomes, copied.wait, copied.run = Counter(self.outcomes), self.wait.copy(), self.run.copy()
        return copied


class AttemptStatistics:
    """Listens to the ends of attempts, in the thread of the event loop.

    >>> statistics = AttemptStatistics()
    >>> statistics(AttemptEnded(task_id=1, queue="mail", name="send", outcome="done", seconds=0.2, wait=1.5))
    >>> [(key.name, dict(found.outcomes), found.run.count) for key, found in statistics.snapshot().items()]
    [('send', {'done': 1}, 1)]
    """

    def __init__(self) -> None:
        self._by_handler: dict[tuple[str, str], HandlerStatistics] = {}

    def accepts(self, kind: type[Event]) -> bool:
        """Only the end of an attempt."""
        return kind is AttemptEnded

    def __call__(self, event: Event) -> None:
        """Count the end of an attempt."""
        assert isinstance(event, AttemptEnded)
        found = self._by_handler.get((event.queue, event.name)) or self._add(event.queue, event.name)
        found.outcomes[event.outcome] += 1
        found.run.add(event.seconds)
        if event.wait is not None:
            found.wait.add(event.wait)

    def snapshot(self) -> dict[HandlerKey, HandlerStatistics]:
        """Copies of all counts."""
        return {HandlerKey(*key): found.copy() for key, found in self._by_handler.items()}

    def _add(self, queue: str, name: str) -> HandlerStatistics:
        key = (queue, name if len(self._by_handler) < MOST_HANDLERS else OTHER)
        return self._by_handler.setdefault(key, HandlerStatistics())
