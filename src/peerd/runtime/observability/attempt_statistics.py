"""Counts of the attempts that have ended in this process, and how long they waited and ran, since its start.

The time series of the database and the metrics of the node are made of it. Counts only grow; a reader keeps the last
snapshot and subtracts it.

A drain ends tens of thousands of attempts in a second, so what is done for each is kept short: 0.7 microseconds.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from peerd.domain.attempt_totals import AttemptTotals, Histogram, outcome_of
from peerd.domain.outcome import RELEASED_LABEL, UNKNOWN_LABEL
from peerd.domain.task import NAME_LIMIT
from peerd.runtime.observability.events import AttemptEnded, Event

MOST_HANDLERS: Final = 500
"""Handlers that are counted one by one: SQL by hand can invent any number of names."""
OTHER: Final = "(other)"
"""The name under which all further handlers of a queue are counted."""
UNTIMED: Final = frozenset({RELEASED_LABEL, UNKNOWN_LABEL})
"""Outcomes of released tasks: most did not begin, and their times say nothing about a handler."""


class HandlerKey(NamedTuple):
    """A handler: the queue and the name of its tasks."""

    queue: str
    name: str


class HandlerStatistics:
    """The ended attempts of one handler.

    Attributes:
        outcomes: how many attempts had each outcome, by its label: done, failure, dead, timeout, snoozed, ….
        wait: seconds from the moment at which a task was due to its claim; not of released attempts.
        run: seconds for which its handler ran; not of released attempts.
    """

    __slots__ = ("outcomes", "run", "wait")

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.wait = Histogram()
        self.run = Histogram()

    def copy(self) -> HandlerStatistics:
        """Statistics of its own with the same counts."""
        copied = HandlerStatistics()
        copied.outcomes, copied.wait, copied.run = Counter(self.outcomes), self.wait.copy(), self.run.copy()
        return copied

    def since(self, earlier: HandlerStatistics | None) -> AttemptTotals:
        """The attempts that were counted after an earlier copy was made; None: all."""
        before = earlier or HandlerStatistics()
        totals = AttemptTotals(wait=self.wait.since(before.wait), run=self.run.since(before.run))
        for label, count in self.outcomes.items():
            totals.outcomes[outcome_of(label)] += count - before.outcomes[label]
        return totals


class AttemptStatistics:
    """Listens to the ends of attempts, in the thread of the event loop. A snapshot may be taken in any thread.

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
        outcomes, outcome = found.outcomes, event.outcome
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        if outcome in UNTIMED:
            return
        found.run.add(event.seconds)
        wait = event.wait
        if wait is not None:
            found.wait.add(wait)

    def snapshot(self) -> dict[HandlerKey, HandlerStatistics]:
        """Copies of all counts."""
        by_handler = list(self._by_handler.items())  # at once: the event loop may add one meanwhile
        return {HandlerKey(*key): found.copy() for key, found in by_handler}

    def key_of(self, queue: str, name: str) -> HandlerKey:
        """The handler under which an attempt is counted; from then on it is one of those that are."""
        if (queue, name) not in self._by_handler:
            self._add(queue, name)
        return HandlerKey(queue, name if (queue, name) in self._by_handler else OTHER)

    def _add(self, queue: str, name: str) -> HandlerStatistics:
        is_counted_alone = len(self._by_handler) < MOST_HANDLERS and len(name) <= NAME_LIMIT
        key = (queue, name if is_counted_alone else OTHER)
        return self._by_handler.setdefault(key, HandlerStatistics())
