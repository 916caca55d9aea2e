"""Many small contents in one response: a head of 24 bytes and the bytes of each, in the order of the request.

id (8 bytes, big-endian) | state (8 bytes: 1 present, 0 missing, 2 unavailable) | size (8 bytes) | the bytes
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

HEAD: Final = struct.Struct(">QQQ")
BLOCK: Final = 256 * 1024
"""Bytes of a response that are read at once."""
MISSING: Final = 0
PRESENT: Final = 1
UNAVAILABLE: Final = 2
"""The disk of a content cannot be read now: whether it is there is not known."""
MAX_CONTENTS: Final = 500
MAX_SIZE: Final = 64 * 1024 * 1024
"""Bytes of one content in a response of many."""


class FrameHead(NamedTuple):
    """The head of a content."""

    content_id: int
    is_present: bool
    size: int
    is_available: bool = True


class InvalidFrame(ValueError):
    """A response is not what a node of this version sends."""


def encode_head(content_id: int, size: int | None, *, is_available: bool = True) -> bytes:
    """The head of a content of so many bytes; None: it is missing, or its disk cannot be read now.

    >>> decode_head(encode_head(7, 100)), decode_head(encode_head(7, None)).is_present
    (FrameHead(content_id=7, is_present=True, size=100, is_available=True), False)
    """
    absent = MISSING if is_available else UNAVAILABLE
    return HEAD.pack(content_id, absent if size is None else PRESENT, size or 0)


def decode_head(data: bytes | memoryview) -> FrameHead:
    """The head in these bytes. Raises InvalidFrame."""
    try:
        content_id, state, size = HEAD.unpack(data)
    except struct.error:
        raise InvalidFrame("the head of a content is incomplete") from None
    if state not in {MISSING, PRESENT, UNAVAILABLE} or size > MAX_SIZE or (state != PRESENT and size):
        raise InvalidFrame("this is no head of a content")
    return FrameHead(content_id, state == PRESENT, size, state != UNAVAILABLE)


class FrameReader:
    """Reads a response in large blocks, and gives what is asked for of them.

    Args:
        read: gives at most so many bytes of the response, none at its end.
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._block = memoryview(b"")

    def head(self) -> FrameHead:
        """The next head. Raises InvalidFrame."""
        return decode_head(self.exactly(HEAD.size))

    def exactly(self, size: int) -> memoryview:
        """The next so many bytes. Raises InvalidFrame if the response ends before."""
        if len(self._block) < size:
            self._fill(size)
        found, self._block = self._block[:size], self._block[size:]
        return found

    def _fill(self, size: int) -> None:
        pieces, count = [bytes(self._block)], len(self._block)
        while count < size:
            data = self._read(max(BLOCK, size - count))
            if not data:
                raise InvalidFrame(f"the response ends {size - count} bytes too early")
            pieces.append(data)
            count += len(data)
        self._block = memoryview(b"".join(pieces))
