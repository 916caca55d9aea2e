"""Frames: the protocol between master, children and clients of the control socket.

A frame is a 4-byte big-endian length and that many bytes of UTF-8 JSON, one object. It is small, because the master
relays decisions and no data.
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
    """Bytes or a message that are no frame; a stream with such bytes cannot be used any further."""


class FrameTooLarge(FrameError):
    """The message has more bytes than a frame carries."""

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__(f"the message has {size} bytes; a frame carries at most {MAX_BODY_BYTES}")


def encode(message: Mapping[str, object], *, escape_surrogates: bool = False) -> bytes:
    r"""The frame of a message.

    Raises FrameError for a message that is not JSON, or too large (`FrameTooLarge`). Halves of surrogate pairs, as in a
    file name that is not UTF-8, are refused or escaped.

    >>> encode({"type": "ready"})
    b'\x00\x00\x00\x10{"type":"ready"}'
    """
    try:
        try:
            body = json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except UnicodeEncodeError:
            if not escape_surrogates:
                raise
            body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise FrameError(f"the message cannot be written as JSON: {error}") from error
    if len(body) > MAX_BODY_BYTES:
        raise FrameTooLarge(len(body))
    return _LENGTH.pack(len(body)) + body


class FrameDecoder:
    """Decodes a stream of frames that arrives in pieces of any size.

    >>> decoder = FrameDecoder()
    >>> decoder.feed(encode({"n": 1})[:6])
    []
    >>> decoder.feed(encode({"n": 1})[6:])
    [{'n': 1}]
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[dict[str, object]]:
        """Add bytes of the stream; return the messages that they complete. Raises FrameError."""
        self._buffer += data
        messages = []
        while len(self._buffer) >= _LENGTH.size:
            end = _LENGTH.size + _body_length(self._buffer)
            if len(self._buffer) < end:
                break
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            messages.append(_message(body))
        return messages


def receive(end: socket.socket) -> dict[str, object] | None:
    """Wait for one frame on a blocking socket, without reading beyond it; None at the end of the stream.

    Raises FrameError for other bytes, and OSError if the socket failed, or timed out.
    """
    head = _receive_exactly(end, _LENGTH.size)
    body = _receive_exactly(end, _body_length(head)) if head else b""
    return _message(body) if body else None


def _receive_exactly(end: socket.socket, size: int) -> bytes:
    """`size` bytes, or none when the stream ends before."""
    data = bytearray()
    while len(data) < size:
        part = end.recv(size - len(data))
        if not part:
            return b""
        data += part
    return bytes(data)


def _body_length(head: bytes | bytearray) -> int:
    (length,) = _LENGTH.unpack_from(head)
    if length > MAX_BODY_BYTES:
        raise FrameError(f"a frame announces {length} bytes, and {MAX_BODY_BYTES} are allowed: this is no frame")
    return int(length)


def _message(body: bytes) -> dict[str, object]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a frame holds no JSON: {error}") from error
    if not isinstance(message, dict):
        raise FrameError(f"a frame holds {type(message).__name__} instead of an object")
    return message
