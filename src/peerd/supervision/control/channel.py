"""A non-blocking stream of frames."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Final

from peerd.runtime.messages.frames import FrameDecoder, FrameError, encode

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
