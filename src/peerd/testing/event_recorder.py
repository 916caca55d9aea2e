"""What happened, kept for a test: wait for it, and not for time to pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from peerd.runtime.observability.events import Fact
from peerd.testing.waiting import eventually, eventually_async

F = TypeVar("F", bound=Fact)

EVERY = 0.005
"""Seconds between two looks."""
SHOWN = 50
"""Facts that an error lists at the most, the latest ones."""


class Facts:
    """A reader of `Events` that keeps what it is told. Facts may come from any thread.

    A fact is chosen by its kind and by any of its figures. It counts whether it happened before one asked or happens
    while one waits; `clear` forgets what was.

    >>> from peerd.runtime.observability.events import ChoreRan, Events
    >>> facts = Facts()
    >>> Events(facts).emit(ChoreRan(chore="expire", count=3))
    >>> facts.wait(ChoreRan, chore="expire").count
    3
    >>> facts.wait(ChoreRan, chore="purge", timeout=0)
    Traceback (most recent call last):
    AssertionError: ChoreRan(chore='purge') among what happened:
      ChoreRan(chore='expire', count=3)
    : not true within 0 s
    """

    def __init__(self) -> None:
        self._facts: list[Fact] = []

    def __call__(self, fact: Fact) -> None:
        """Keep a fact."""
        self._facts.append(fact)

    def __iter__(self) -> Iterator[Fact]:
        """All of them, in the order in which they came."""
        return iter(tuple(self._facts))

    def __len__(self) -> int:
        """How many there are."""
        return len(self._facts)

    def clear(self) -> None:
        """Forget what was."""
        self._facts.clear()

    def of(self, kind: type[F], /, **figures: object) -> list[F]:
        """All facts of a kind with these figures, in the order in which they came.

        Raises:
            TypeError: facts of this kind do not have such a figure.

        Example::

            facts.of(AttemptEnded, queue="video", outcome="failure")
        """
        unknown = sorted(set(figures) - set(kind.__struct_fields__))
        if unknown:
            raise TypeError(f"{kind.__name__} has no {unknown[0]!r}; it has {', '.join(kind.__struct_fields__)}")
        return [fact for fact in self if isinstance(fact, kind) and _has(fact, figures)]

    def wait(self, kind: type[F], /, *, times: int = 1, timeout: float = 10.0, **figures: object) -> F:
        """Wait until so many such facts have happened; the last of them.

        Args:
            kind: which facts.
            times: how many; the first one is enough.
            timeout: seconds that one waits at the most.
            figures: what they say.

        Raises:
            AssertionError: they did not happen in time; the error lists what did.
        """
        found = eventually(lambda: self._first(times, kind, figures), timeout, EVERY, self._missing(kind, figures))
        return found[-1]

    async def seen(self, kind: type[F], /, *, times: int = 1, timeout: float = 10.0, **figures: object) -> F:  # noqa: ASYNC109 - as in wait
        """`wait`, awaited."""
        missing = self._missing(kind, figures)
        found = await eventually_async(lambda: self._first(times, kind, figures), timeout, EVERY, missing)
        return found[-1]

    def _first(self, times: int, kind: type[F], figures: dict[str, Any]) -> list[F]:
        found = self.of(kind, **figures)[:times]
        return found if len(found) == times else []

    def _missing(self, kind: type[Fact], figures: dict[str, Any]) -> Callable[[], str]:
        """What is said when it did not happen."""
        wanted = ", ".join(f"{name}={value!r}" for name, value in figures.items())

        def words() -> str:
            happened = "".join(f"\n  {fact}" for fact in list(self)[-SHOWN:]) or " nothing"
            return f"{kind.__name__}({wanted}) among what happened:{happened}\n"

        return words


def _has(fact: Fact, figures: dict[str, Any]) -> bool:
    return all(getattr(fact, name) == value for name, value in figures.items())
