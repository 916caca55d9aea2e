"""What becomes of a message: known once the master has answered for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from concurrent.futures import Future
from itertools import count
from typing import Any, Generic, TypeVar

from peerd.domain.errors import MessengerFull
from peerd.runtime.messages.addressing import MAX_IN_FLIGHT, MAX_IN_FLIGHT_BYTES, Target

T = TypeVar("T")


class PendingResult(Generic[T]):
    """A value that comes later: awaited in a coroutine, waited for in a thread, or left alone."""

    def __init__(self, action: str, target: Target) -> None:
        self.action = action
        self.target = target
        self.is_awaited = False
        """Whether somebody has asked for it, and so will hear of an error."""
        self._future: Future[T] = Future()
        self._future.set_running_or_notify_cancel()  # one who no longer waits does not end it for the others

    def __await__(self) -> Generator[Any, None, T]:
        self.is_awaited = True
        return asyncio.wrap_future(self._future).__await__()

    def wait(self, timeout: float | None = None) -> T:
        """Wait for it in a thread; never on the event loop, which would not hear of it then.

        Raises:
            TimeoutError: it has not come within `timeout` seconds.
        """
        self.is_awaited = True
        return self._future.result(timeout)

    @property
    def is_known(self) -> bool:
        """Whether it has come."""
        return self._future.done()

    def resolve(self, value: T) -> None:
        """Let it be known."""
        self._future.set_result(value)

    def fail(self, error: Exception) -> None:
        """Let it be known that there is none."""
        self._future.set_exception(error)


class Delivery(PendingResult[int]):
    """What becomes of a message that was sent; awaited, how many processes it was handed to.

    Awaiting it raises `Undeliverable` when it did not reach all whom it was for. Who does not care need not await it:
    then a failed delivery stands in the log.
    """


class PendingReply(PendingResult[Any]):
    """What a request is answered with."""


class InFlightMessages:
    """The messages of which it is not known yet what became of them: so many, and no more. Thread-safe.

    It is what bounds the memory of sender and master: a process that sends faster than messages are delivered is told.
    """

    def __init__(self, limit: int = MAX_IN_FLIGHT, limit_bytes: int = MAX_IN_FLIGHT_BYTES) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._numbers = count(1)
        self._pending: dict[int, tuple[Delivery | PendingReply, int]] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def open(self, pending: Delivery | PendingReply, size: int) -> int:
        """Keep one more; return its number.

        Raises:
            MessengerFull: too many wait already.
        """
        with self._lock:
            if len(self._pending) >= self._limit or self._bytes + size > self._limit_bytes:
                raise MessengerFull(pending.action, len(self._pending), self._bytes)
            number = next(self._numbers)
            self._pending[number] = (pending, size)
            self._bytes += size
            return number

    def close(self, number: object) -> Delivery | PendingReply | None:
        """Take one out, if it is there."""
        with self._lock:
            pending, size = self._pending.pop(number, (None, 0)) if isinstance(number, int) else (None, 0)
            self._bytes -= size
            return pending

    def close_all(self) -> list[Delivery | PendingReply]:
        """Take all out."""
        with self._lock:
            taken = [pending for pending, _ in self._pending.values()]
            self._pending.clear()
            self._bytes = 0
            return taken
