"""One thing that goes wrong with calls of a database: which of them, how often, and what the harm is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from peerd.domain.errors import DatabaseUnavailable

FaultCondition = Callable[..., object]


class Fault:
    """Something that goes wrong with some calls, until it has happened so many times or is healed.

    As a context manager it is healed at the end of the block.
    """

    def __init__(
        self,
        operation: str | None,
        call: int,
        times: int | None,
        when: FaultCondition | None,
        effect: Callable[[Fault], None],
    ) -> None:
        self.hits = 0
        """How often it has happened."""
        self.healed = threading.Event()
        self._operation = operation
        self._skip = call - 1
        self._left = times
        self._when = when
        self._effect = effect

    def heal(self) -> None:
        """It happens no more; what it holds up goes on."""
        self.healed.set()

    def __enter__(self) -> Self:
        """The fault itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Heal it."""
        self.heal()

    def applies_to(self, operation: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether it happens to this call; counts it. Under the database's lock."""
        if self.healed.is_set() or self._left == 0 or self._operation not in (None, operation):
            return False
        if self._when is not None and not self._when(*args, **kwargs):
            return False
        if self._skip:
            self._skip -= 1
            return False
        if self._left is not None:
            self._left -= 1
        self.hits += 1
        return True

    def apply(self) -> None:
        """Do the harm."""
        self._effect(self)


def away(words: str) -> Callable[[], Exception]:
    """Makes errors that say so: the database is away."""
    return lambda: DatabaseUnavailable(words)


def raise_effect(error: Exception | Callable[[], Exception]) -> Callable[[Fault], None]:
    """The harm of an error."""

    def effect(_: Fault) -> None:
        raise error.with_traceback(None) if isinstance(error, Exception) else error()

    return effect


def wait_effect(seconds: float) -> Callable[[Fault], None]:
    """The harm of a wait: so many seconds, or until the fault is healed."""

    def effect(fault: Fault) -> None:
        fault.healed.wait(seconds)

    return effect
