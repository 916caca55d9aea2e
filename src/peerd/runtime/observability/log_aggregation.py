"""Thousands of successes in a second are one line of the log, not thousands.

A few in a second are told each. What comes beyond them is counted, and told together when the second is over: at ten
thousand tasks a second their lines would be gigabytes in an hour, and a third of what the process computes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from peerd.runtime.observability.events import AttemptEnded, Fact, Reader, TasksDone, is_heard_by

EACH: Final = 25
"""Successes in a second that are told each."""
SPAN: Final = 1.0
"""Seconds."""


class Condensed:
    """A reader of events that passes them on, successes beyond `EACH` in a second as one fact.

    Without an event loop nothing is kept back: nobody would tell it later.

    Args:
        reader: gets what is passed on.

    >>> seen = []
    >>> tell = Condensed(seen.append)
    >>> async def end_many():
    ...     for task_id in range(100):
    ...         tell(AttemptEnded(task_id=task_id, queue="mail", name="send", outcome="done", seconds=0.01))
    ...     tell.flush()
    >>> asyncio.run(end_many())
    >>> len(seen), seen[-1].count, seen[-1].by_handler
    (26, 75, {'mail.send': 75})
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._span: asyncio.TimerHandle | None = None
        self._told = 0
        self._kept: Counter[tuple[str, str]] = Counter()
        self._seconds = 0.0

    def hears(self, kind: type[Fact]) -> bool:
        """What its reader hears."""
        return is_heard_by(self._reader, kind)

    def __call__(self, fact: Fact) -> None:
        """Pass a fact on, or keep it for the end of the span."""
        if type(fact) is not AttemptEnded or fact.outcome != "done" or (self._span is None and not self._begin_span()):
            self._reader(fact)
        elif self._told < EACH:
            self._told += 1
            self._reader(fact)
        else:
            self._kept[fact.queue, fact.name] += 1
            self._seconds += fact.seconds

    def flush(self) -> None:
        """End the span: tell what was kept."""
        if self._span is not None:
            self._span.cancel()
            self._span = None
        kept, self._kept = self._kept, Counter()
        seconds, self._seconds = self._seconds, 0.0
        self._told = 0
        if kept:
            by_handler = {f"{queue}.{name}" if name else queue: count for (queue, name), count in kept.items()}
            self._reader(TasksDone(count=kept.total(), seconds=seconds, by_handler=by_handler))

    def _begin_span(self) -> bool:
        """Begin a span; False where there is no event loop to end it."""
        try:
            self._span = asyncio.get_running_loop().call_later(SPAN, self.flush)
        except RuntimeError:
            return False
        return True
