"""The master's event loop, which survives every error in a callback, and the streams of frames in it."""

from __future__ import annotations

import selectors
import signal
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from peerd.runtime.frames import FrameDecoder, FrameError, encode

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
        except Exception as error:  # noqa: BLE001 - the node's processes need their master after any failure
            self._on_error(error)


# ---------------------------------------------------------------- streams of frames


MAX_UNSENT_BYTES: Final = 8 * 1024 * 1024
"""Bytes that are kept for a peer that does not read; further frames are dropped."""

MAX_READ_BYTES: Final = 256 * 1024
"""Bytes that are read from one stream in one round of the loop, so that others get their turn."""


class FrameChannel:
    """The master's end of a socket: a child's link, or a client's connection to the control socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._socket.setblocking(False)
        self._decoder = FrameDecoder()
        self._outgoing = bytearray()
        self.is_open = True

    def fileno(self) -> int:
        return self._socket.fileno()

    def has_unsent(self) -> bool:
        return bool(self._outgoing)

    def send(self, message: Mapping[str, object]) -> bool:
        """Send a frame as soon as the peer reads; return whether there was room for it."""
        return self.send_frame(encode(message, escape_surrogates=True))

    def send_frame(self, frame: bytes, max_unsent: int = MAX_UNSENT_BYTES) -> bool:
        """Send an encoded frame unless `max_unsent` bytes wait already."""
        if not self.is_open or len(self._outgoing) >= max_unsent:
            return False
        self._outgoing += frame
        self.flush()
        return True

    def end_with(self, message: Mapping[str, object]) -> None:
        """Send a last frame, as far as possible at once, to a peer that has sent an invalid one."""
        self._outgoing += encode(message, escape_surrogates=True)
        self.flush()
        self.is_open = False

    def flush(self) -> None:
        while self._outgoing:
            try:
                del self._outgoing[: self._socket.send(self._outgoing)]
            except BlockingIOError:
                return
            except OSError:  # the peer has gone, which reading will show
                self._outgoing.clear()

    def receive(self, max_bytes: float = MAX_READ_BYTES) -> list[dict[str, object]]:
        """Return the messages that have arrived; at the end of the stream the channel is no longer open.

        Raises:
            FrameError: a frame is invalid; the rest of the stream is not read.
        """
        messages: list[dict[str, object]] = []
        while self.is_open and max_bytes > 0:
            try:
                data = self._socket.recv(65536)
                max_bytes -= len(data)
                messages += self._decoder.feed(data)
                self.is_open = bool(data)
            except BlockingIOError:
                break
            except FrameError:
                self.is_open = False
                raise
            except OSError:
                self.is_open = False
        return messages

    def close(self) -> None:
        self.is_open = False
        self._socket.close()
