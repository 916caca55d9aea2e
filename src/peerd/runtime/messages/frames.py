"""Frames: how master, children and the control socket's clients talk.

A frame is a 4-byte big-endian length and that many bytes of UTF-8 JSON, one object. The sizes are small on purpose:
the master relays decisions, never data.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from typing import Final

MAX_BODY_BYTES: Final = 1024 * 1024
"""The largest body of a frame, in bytes."""

_LENGTH: Final = struct.Struct(">I")


class FrameError(ValueError):
    """What came in, or was to go out, is not a frame; the stream it came from cannot be used any further."""


class FrameTooLarge(FrameError):
    """The message has more bytes than a frame carries."""

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__(f"the message has {size} bytes; a frame carries at most {MAX_BODY_BYTES}")


def encode(message: Mapping[str, object], *, escape_surrogates: bool = False) -> bytes:
    r"""Return the frame of a message.

    Args:
        message: anything that JSON can say, as an object.
        escape_surrogates: whether halves of surrogate pairs, as in a file name that is no text, are escaped; otherwise
            they are refused.

    Raises:
        FrameError: it cannot be said in JSON, or is larger than `MAX_BODY_BYTES` bytes (`FrameTooLarge`).

    Example:
        >>> encode({"type": "ready"})
        b'\x00\x00\x00\x10{"type":"ready"}'
    """
    try:
        body = _json(message, escape_surrogates=escape_surrogates)
    except (TypeError, ValueError, RecursionError) as error:
        raise FrameError(f"the message cannot be said in JSON: {error}") from error
    if len(body) > MAX_BODY_BYTES:
        raise FrameTooLarge(len(body))
    return _LENGTH.pack(len(body)) + body


def _json(message: Mapping[str, object], *, escape_surrogates: bool) -> bytes:
    try:
        return json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError:
        if not escape_surrogates:
            raise
        return json.dumps(message, separators=(",", ":"), allow_nan=False).encode()


class FrameDecoder:
    """Cuts a stream of bytes into messages, however the bytes arrive.

    Example:
        >>> decoder = FrameDecoder()
        >>> decoder.feed(encode({"n": 1})[:6])
        []
        >>> decoder.feed(encode({"n": 1})[6:])
        [{'n': 1}]
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[dict[str, object]]:
        """Take the next bytes of the stream; return the messages that they complete.

        Raises:
            FrameError: the stream is not made of frames.
        """
        self._buffer += data
        messages = []
        while (body := self._next_body()) is not None:
            messages.append(_message(body))
        return messages

    def _next_body(self) -> bytes | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        length = _length(self._buffer)
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        return body


def receive(end: socket.socket) -> dict[str, object] | None:
    """Wait for exactly one frame on a blocking socket, leaving what follows unread; None at the end of the stream.

    Raises:
        FrameError: what came is not a frame.
        OSError: the socket failed, or its timeout is over.
    """
    head = _receive_exactly(end, _LENGTH.size)
    body = _receive_exactly(end, _length(head)) if head else b""
    return _message(body) if body else None


def _receive_exactly(end: socket.socket, size: int) -> bytes:
    """Return `size` bytes, or none at all when the stream ends before."""
    data = bytearray()
    while len(data) < size:
        part = end.recv(size - len(data))
        if not part:
            return b""
        data += part
    return bytes(data)


def _length(head: bytes | bytearray) -> int:
    (length,) = _LENGTH.unpack_from(head)
    if length > MAX_BODY_BYTES:
        raise FrameError(f"a frame says it has {length} bytes, and {MAX_BODY_BYTES} are allowed: this is no frame")
    return int(length)


def _message(body: bytes) -> dict[str, object]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a frame holds no JSON: {error}") from error
    if not isinstance(message, dict):
        raise FrameError(f"a frame holds {type(message).__name__} where an object belongs")
    return message
