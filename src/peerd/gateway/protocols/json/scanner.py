"""Finds the end of a JSON object in bytes that come in pieces. Each byte is examined once, however the pieces are cut.

The scanner knows strings, escapes and brackets, and which bytes can occur outside of strings; it does not check the
grammar, which is left to the decoder of the whole object. What it does notice is noticed at once: a client that speaks
another protocol, or does not escape its texts, need not send an end to be answered.
"""

from __future__ import annotations

import re
from typing import Final

MAX_DEPTH: Final = 100
"""Objects and arrays within one another; the readers of some languages refuse more unless they are asked to."""

_OUTSIDE: Final = re.compile(rb'"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"|[{}\[\]"]|[^ \t\r\n:,0-9+\-.eEaflnrstu]')
"""Outside of strings: a whole string, or one byte that means something, or one that cannot be there."""
_INSIDE: Final = re.compile(rb'["\\\x00-\x1f]')
_SPACE: Final = re.compile(rb"[ \t\r\n]*+")


class NotJson(ValueError):
    """The bytes cannot be the text of a JSON object, whatever comes behind them."""


class ObjectScanner:
    r"""The state of a search for the end of one object.

    >>> scanner = ObjectScanner()
    >>> scanner.find_end(b'{"a": "}'), scanner.find_end(b'{"a": "}\\""} {')
    (-1, 12)
    """

    __slots__ = ("_depth", "_in_string", "_position", "deepest")

    def __init__(self) -> None:
        self.deepest = 0
        """The levels of objects and arrays so far."""
        self._depth = 0
        self._in_string = False
        self._position = 0

    def find_end(self, data: bytes | bytearray) -> int:
        """Where the object ends in ``data``, or -1 if it does not end there.

        Args:
            data: the object from its first byte on, as in the call before, and what has come since; without the bytes
                that were dropped.

        Raises:
            NotJson: there is a byte that cannot be there.
        """
        size = len(data)
        while self._position < size:
            if self._in_string:
                self._scan_string(data)
            elif self._scan_outside(data):
                return self._position
        return -1

    def drop(self, size: int) -> None:
        """Note that so many bytes, which were examined, are dropped from the beginning of the data."""
        self._position -= size

    def _scan_string(self, data: bytes | bytearray) -> None:
        found = _INSIDE.search(data, self._position)
        if found is None:
            self._position = len(data)
            return
        byte = data[found.start()]
        self._position = found.end()
        if byte == 0x5C:
            self._position += 1  # whatever is escaped ends no string; it may not have come yet
        elif byte == 0x22:
            self._in_string = False
        else:
            raise NotJson(f"a string holds the control character {byte:#04x}, which must be escaped")

    def _scan_outside(self, data: bytes | bytearray) -> bool:
        """Scan until a string begins that is not complete, or the object ends; return whether it ends."""
        depth = self._depth
        for found in _OUTSIDE.finditer(data, self._position):
            start = found.start()
            if found.end() - start > 1:
                continue
            match data[start]:
                case 0x7B | 0x5B:
                    depth += 1
                    self.deepest = max(self.deepest, depth)
                case 0x7D | 0x5D:
                    depth -= 1
                    if depth == 0:
                        self._position = start + 1
                        return True
                case 0x22:
                    self._depth, self._position, self._in_string = depth, start + 1, True
                    return False
                case byte:
                    raise NotJson(f"the byte {byte:#04x} cannot be there")
        self._depth, self._position = depth, len(data)
        return False


def count_levels(text: bytes) -> int:
    """The objects and arrays within one another in the text of a JSON value.

    >>> count_levels(b'[{"[": 1}, [2]]'), count_levels(b'"["')
    (2, 0)
    """
    deepest = depth = 0
    for found in _OUTSIDE.finditer(text):
        byte = text[found.start()]
        if byte in b"{[":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"}]":
            depth -= 1
    return deepest


def skip_space(data: bytes | bytearray) -> int:
    """How many bytes of white space come first."""
    found = _SPACE.match(data)
    return found.end() if found else 0
