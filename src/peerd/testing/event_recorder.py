"""What happened, kept for a test: wait for it, and not for time to pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from peerd.runtime.observability.events import Event
from peerd.testing.waiting import eventually, eventually_async

F = TypeVar("F", bound=Event)

CHECK_EVERY = 0.005
"""Seconds between two looks."""
MAX_SHOWN = 50
"""Facts that an error lists at the most, the latest ones."""


class EventRecorder:
    """A reader of `Events` that keeps what it is told. Facts may come from any thread.

    A fact is chosen by its kind and by any of its figures. It counts whether it happened before one asked or happens
    while one waits; `clear` forgets what was.

    >>> from peerd.runtime.observability.events import ChoreRan, EventBus
    >>> facts = EventRecorder()
    >>> EventBus(facts).emit(ChoreRan(chore="expire", count=3))
    >>> facts.wait(ChoreRan, chore="expire").count
    3
    >>> facts.wait(ChoreRan, chore="purge", timeout=0)
    Traceback (most recent call last):
    AssertionError: ChoreRan(chore='purge') among what happened:
      ChoreRan(chore='expire', count=3)
    : not true within 0 s
    """

    def __init__(self) -> None:
        self._events: list[Event] = []

    def __call__(self, event: Event) -> None:
        """Keep a fact."""
        self._events.append(event)

    def __iter__(self) -> Iterator[Event]:
        """All of them, in the order in which they came."""
        return iter(tuple(self._events))

    def __len__(self) -> int:
        """How many there are."""
        return len(self._events)

    def clear(self) -> None:
        """Forget what was."""
        self._events.clear()

    def of(self, kind: type[F], /, **fields: object) -> list[F]:
        """All facts of a kind with these figures, in the order in which they came.

        Raises:
            TypeError: facts of this kind do not have such a figure.

        Example::

            facts.of(AttemptEnded, queue="video", outcome="failure")
        """
        unknown = sorted(set(fields) - set(kind.__struct_fields__))
        if unknown:
            raise TypeError(f"{kind.__name__} has no {unknown[0]!r}; it has {', '.join(kind.__struct_fields__)}")
        return [event for event in self if isinstance(event, kind) and _has(event, fields)]

    def wait(self, kind: type[F], /, *, times: int = 1, timeout: float = 10.0, **fields: object) -> F:
        """Wait until so many such facts have happened; the last of them.

        Args:
            kind: which facts.
            times: how many; the first one is enough.
            timeout: seconds that one waits at the most.
            **fields: what they say.

        Raises:
            AssertionError: they did not happen in time; the error lists what did.
        """
        found = eventually(lambda: self._first(times, kind, fields), timeout, CHECK_EVERY, self._missing(kind, fields))
        return found[-1]

    async def seen(self, kind: type[F], /, *, times: int = 1, timeout: float = 10.0, **fields: object) -> F:  # noqa: ASYNC109 - as in wait
        """`wait`, awaited."""
        missing = self._missing(kind, fields)
        found = await eventually_async(lambda: self._first(times, kind, fields), timeout, CHECK_EVERY, missing)
        return found[-1]

    def _first(self, times: int, kind: type[F], fields: dict[str, Any]) -> list[F]:
        found = self.of(kind, **fields)[:times]
        return found if len(found) == times else []

    def _missing(self, kind: type[Event], fields: dict[str, Any]) -> Callable[[], str]:
        """What is said when it did not happen."""
        wanted = ", ".join(f"{name}={value!r}" for name, value in fields.items())

        def words() -> str:
            happened = "".join(f"\n  {event}" for event in list(self)[-MAX_SHOWN:]) or " nothing"
            return f"{kind.__name__}({wanted}) among what happened:{happened}\n"

        return words


def _has(event: Event, fields: dict[str, Any]) -> bool:
    return all(getattr(event, name) == value for name, value in fields.items())
