"""The master's event loop, which survives every error in a callback."""

from __future__ import annotations

import selectors
import signal
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

Callback = Callable[[], None]


class _Registration(NamedTuple):
    ready: Callback
    has_unsent: Callable[[], bool]


class SelectorLoop:
    """A single-threaded loop over descriptors and signals; `on_error` is called with exceptions of callbacks."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self._selector = selectors.DefaultSelector()

    def register(
        self, source: FileDescriptorLike, ready: Callback, has_unsent: Callable[[], bool] = lambda: False
    ) -> None:
        """Call `ready` when the source is readable or, while `has_unsent` returns true, writable."""
        self._selector.register(source, selectors.EVENT_READ, _Registration(ready, has_unsent))

    def unregister(self, source: FileDescriptorLike) -> None:
        """Stop watching a source; an unknown one is ignored."""
        if source in self._selector.get_map():
            self._selector.unregister(source)

    def handle_signals(self, numbers: tuple[signal.Signals, ...], on_signals: Callable[[list[int]], None]) -> None:
        """Call `on_signals` with the numbers of received signals, from the loop and never from a signal handler."""
        receiver, sender = socket.socketpair()
        receiver.setblocking(False)
        sender.setblocking(False)
        for number in numbers:
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        self._waker = sender  # kept open
        self.register(receiver, lambda: on_signals(list(receiver.recv(4096))))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)  # delivers signals that came before

    def wait(self, seconds: float) -> None:
        """Wait for events for at most this time, and call their callbacks."""
        for key in list(self._selector.get_map().values()):
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if key.data.has_unsent() else 0)
            if events != key.events:
                self._selector.modify(key.fileobj, events, key.data)
        for key, _ in self._selector.select(seconds):
            if self._selector.get_map().get(key.fd) is key:  # otherwise an earlier callback has unregistered it
                self.run_guarded(key.data.ready)

    def run_guarded(self, step: Callback) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - the node's processes need their master, whatever fails
            self._on_error(error)
