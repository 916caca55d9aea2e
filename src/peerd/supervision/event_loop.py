"""The master's loop: waits for descriptors and signals, calls what watches them, and outlives every mistake in it."""

from __future__ import annotations

import selectors
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

Callback = Callable[[], None]


class HasFileno(Protocol):
    """What can be waited for."""

    def fileno(self) -> int:
        """Return the descriptor."""
        ...


@dataclass(frozen=True, slots=True)
class _Registration:
    ready: Callback
    has_unsent: Callable[[], bool]


class SelectorLoop:
    """A single thread's loop. It knows no time: who calls `wait` says how long."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        """Make it.

        Args:
            on_error: gets the exceptions of callbacks; the loop goes on.
        """
        self._on_error = on_error
        self._selector = selectors.DefaultSelector()

    def register(
        self, source: int | HasFileno, ready: Callback, has_unsent: Callable[[], bool] = lambda: False
    ) -> None:
        """Call `ready` when there is something to read, or, while `has_unsent` is true, room to write."""
        self._selector.register(source, selectors.EVENT_READ, _Registration(ready, has_unsent))

    def unregister(self, source: int | HasFileno) -> None:
        """Watch it no more; unknown ones are no error."""
        if source in self._selector.get_map():
            self._selector.unregister(source)

    def handle_signals(self, numbers: tuple[signal.Signals, ...], on_signals: Callable[[list[int]], None]) -> None:
        """Call `on_signals` with the numbers of signals that have come, from the loop and never from a handler."""
        receiver, sender = socket.socketpair()
        receiver.setblocking(False)
        sender.setblocking(False)
        for number in numbers:
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        self._waker = sender  # kept open
        self.register(receiver, lambda: on_signals(list(receiver.recv(4096))))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)  # what came before there was anybody to hear it

    def wait(self, seconds: float) -> None:
        """Wait so long at most, and call what is due."""
        for key in list(self._selector.get_map().values()):
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if key.data.has_unsent() else 0)
            if events != key.events:
                self._selector.modify(key.fileobj, events, key.data)
        for key, _ in self._selector.select(seconds):
            if self._selector.get_map().get(key.fd) is key:  # else one called before it has ended it
                self.run_guarded(key.data.ready)

    def run_guarded(self, step: Callback) -> None:
        """Call it; a mistake in it is reported, and is no reason to fall."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - whatever it is, the node's processes need their master
            self._on_error(error)
