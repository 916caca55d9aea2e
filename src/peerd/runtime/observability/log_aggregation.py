"""Aggregation of successes in the log: a few in a second are events of their own, the others are one event.

At ten thousand tasks a second their lines would be gigabytes in an hour, and a third of the processor time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from peerd.runtime.observability.events import AttemptEnded, Event, EventListener, TasksDone, accepts_event

MAX_EACH_SPAN: Final = 25
"""Successes in a second that are events of their own."""
SPAN_SECONDS: Final = 1.0


class SuccessAggregator:
    """Passes events to a listener, successes beyond `MAX_EACH_SPAN` in a second as one `TasksDone`.

    Without an event loop, which would end the second, all are passed on.

    >>> seen = []
    >>> aggregator = SuccessAggregator(seen.append)
    >>> async def end_many():
    ...     for task_id in range(100):
    ...         aggregator(AttemptEnded(task_id=task_id, queue="mail", name="send", outcome="done", seconds=0.01))
    ...     aggregator.flush()
    >>> asyncio.run(end_many())
    >>> len(seen), seen[-1].count, seen[-1].by_handler
    (26, 75, {'mail.send': 75})
    """

    def __init__(self, listener: EventListener) -> None:
        self._listener = listener
        self._span_timer: asyncio.TimerHandle | None = None
        self._passed_on = 0
        self._aggregated: Counter[tuple[str, str]] = Counter()
        self._seconds = 0.0

    def accepts(self, kind: type[Event]) -> bool:
        """Whether its listener accepts events of this kind."""
        return accepts_event(self._listener, kind)

    def __call__(self, event: Event) -> None:
        """Pass an event on, or count it until the end of the span."""
        if (
            type(event) is not AttemptEnded
            or event.outcome != "done"
            or (self._span_timer is None and not self._begin_span())
        ):
            self._listener(event)
        elif self._passed_on < MAX_EACH_SPAN:
            self._passed_on += 1
            self._listener(event)
        else:
            self._aggregated[event.queue, event.name] += 1
            self._seconds += event.seconds

    def flush(self) -> None:
        """End the span: pass the counted successes on."""
        if self._span_timer is not None:
            self._span_timer.cancel()
            self._span_timer = None
        aggregated, self._aggregated = self._aggregated, Counter()
        seconds, self._seconds = self._seconds, 0.0
        self._passed_on = 0
        if aggregated:
            by_handler = {f"{queue}.{name}" if name else queue: count for (queue, name), count in aggregated.items()}
            self._listener(TasksDone(count=aggregated.total(), seconds=seconds, by_handler=by_handler))

    def _begin_span(self) -> bool:
        """Begin a span; return False without an event loop."""
        try:
            self._span_timer = asyncio.get_running_loop().call_later(SPAN_SECONDS, self.flush)
        except RuntimeError:
            return False
        return True
