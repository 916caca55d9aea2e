"""Deliveries and replies that are not known yet, and the limit of their number."""

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
    """A result that comes later: it can be awaited in a coroutine, waited for in a thread, or ignored."""

    def __init__(self, action: str, target: Target) -> None:
        self.action = action
        self.target = target
        self.is_awaited = False
        """Whether the caller waits, and so gets an error."""
        self.future: Future[T] = Future()
        self.future.set_running_or_notify_cancel()  # so that a cancelled waiter does not cancel it for the others

    def __await__(self) -> Generator[Any, None, T]:
        self.is_awaited = True
        return asyncio.wrap_future(self.future).__await__()

    def wait(self, timeout: float | None = None) -> T:
        """Wait in a thread (on the event loop it would never come); raises TimeoutError after `timeout` seconds."""
        self.is_awaited = True
        return self.future.result(timeout)


class Delivery(PendingResult[int]):
    """The delivery of a message; awaited, the number of processes that got it, or `Undeliverable` if not all did.

    A failed delivery that is not awaited is logged.
    """


class PendingReply(PendingResult[Any]):
    """The reply to a request."""


class InFlightMessages:
    """The messages whose delivery or reply is not known yet, up to a limit of number and bytes. Thread-safe.

    The limit bounds the memory of sender and master, if a process sends faster than messages are delivered.
    """

    def __init__(self) -> None:
        self._numbers = count(1)
        self._pending: dict[int, tuple[Delivery | PendingReply, int]] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def open(self, pending: Delivery | PendingReply, size: int) -> int:
        """Add a message; return its number. Raises MessengerFull."""
        with self._lock:
            if len(self._pending) >= MAX_IN_FLIGHT or self._bytes + size > MAX_IN_FLIGHT_BYTES:
                raise MessengerFull(pending.action, len(self._pending), self._bytes)
            number = next(self._numbers)
            self._pending[number] = (pending, size)
            self._bytes += size
            return number

    def close(self, number: object) -> Delivery | PendingReply | None:
        """Remove a message, if it is there."""
        with self._lock:
            pending, size = self._pending.pop(number, (None, 0)) if isinstance(number, int) else (None, 0)
            self._bytes -= size
            return pending

    def close_all(self) -> list[Delivery | PendingReply]:
        """Remove all messages."""
        with self._lock:
            removed = [pending for pending, _ in self._pending.values()]
            self._pending.clear()
            self._bytes = 0
            return removed
