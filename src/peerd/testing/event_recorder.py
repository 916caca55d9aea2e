"""Events, recorded for a test: wait for one of them, and not for time to pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from peerd.runtime.observability.events import Event
from peerd.testing.waiting import eventually, eventually_async

E = TypeVar("E", bound=Event)

CHECK_EVERY = 0.005
"""Seconds between two checks."""
MAX_SHOWN = 50
"""Events that an error lists at the most, the latest ones."""


class EventRecorder:
    """A listener of an `EventBus` that keeps its events. They may come from any thread.

    An event is chosen by its type and by any of its fields. It counts whether it happened before the call or happens
    during it; `clear` forgets the earlier ones.

    >>> from peerd.runtime.observability.events import ChoreRan, EventBus
    >>> events = EventRecorder()
    >>> EventBus(events).emit(ChoreRan(chore="expire", count=3))
    >>> events.wait(ChoreRan, chore="expire").count
    3
    >>> events.wait(ChoreRan, chore="purge", timeout=0)
    Traceback (most recent call last):
    AssertionError: ChoreRan(chore='purge') among what happened:
      ChoreRan(chore='expire', count=3)
    : not true within 0 s
    """

    def __init__(self) -> None:
        self._events: list[Event] = []

    def __call__(self, event: Event) -> None:
        """Keep an event."""
        self._events.append(event)

    def __iter__(self) -> Iterator[Event]:
        """All of them, in the order in which they came."""
        return iter(tuple(self._events))

    def __len__(self) -> int:
        """How many there are."""
        return len(self._events)

    def clear(self) -> None:
        """Forget all of them."""
        self._events.clear()

    def of(self, kind: type[E], /, **fields: object) -> list[E]:
        """All events of a type with these values of fields, in the order in which they came.

        Raises:
            TypeError: events of this type do not have such a field.

        Example::

            events.of(AttemptEnded, queue="video", outcome="failure")
        """
        unknown = sorted(set(fields) - set(kind.__struct_fields__))
        if unknown:
            raise TypeError(f"{kind.__name__} has no {unknown[0]!r}; it has {', '.join(kind.__struct_fields__)}")
        chosen = (event for event in self if isinstance(event, kind))
        return [event for event in chosen if all(getattr(event, name) == value for name, value in fields.items())]

    def wait(self, kind: type[E], /, *, times: int = 1, timeout: float = 10.0, **fields: object) -> E:
        """Wait until so many such events have happened; the last of them.

        Args:
            kind: their type.
            times: how many.
            timeout: seconds.
            **fields: values of their fields.

        Raises:
            AssertionError: they did not happen in time; the error lists those that did.
        """
        check, message = self._first(times, kind, fields), self._missing(kind, fields)
        return eventually(check, timeout, CHECK_EVERY, message)[-1]

    async def seen(self, kind: type[E], /, *, times: int = 1, timeout: float = 10.0, **fields: object) -> E:  # noqa: ASYNC109 - as in wait
        """`wait`, awaited."""
        check, message = self._first(times, kind, fields), self._missing(kind, fields)
        return (await eventually_async(check, timeout, CHECK_EVERY, message))[-1]

    def _first(self, times: int, kind: type[E], fields: dict[str, Any]) -> Callable[[], list[E]]:
        return lambda: found if len(found := self.of(kind, **fields)[:times]) == times else []

    def _missing(self, kind: type[Event], fields: dict[str, Any]) -> Callable[[], str]:
        wanted = ", ".join(f"{name}={value!r}" for name, value in fields.items())

        def message() -> str:
            happened = "".join(f"\n  {event}" for event in list(self)[-MAX_SHOWN:]) or " nothing"
            return f"{kind.__name__}({wanted}) among what happened:{happened}\n"

        return message
