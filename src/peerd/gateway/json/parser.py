"""The messages of a client's stream, which may come in any pieces. Bytes in, messages out; no input or output here.

The scanner finds the end of a JSON object and examines each byte once, however the pieces are cut. It knows strings,
escapes and brackets, and which bytes can occur outside of strings; it does not check the grammar, which is left to the
decoder of the whole object. What it does notice is noticed at once: a client that speaks another protocol, or does not
escape its texts, need not send an end to be answered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from peerd.domain.quoting import quoted
from peerd.gateway.json.messages import (
    COMMANDS,
    MAX_ID,
    MAX_ID_LENGTH,
    ErrorCode,
    Message,
    RefusedMessage,
)

MESSAGE_OVERHEAD: Final = 8192
"""Bytes that a message may have beside the largest job."""
HEAD: Final = 1024
"""Bytes of a message that is skipped, in which its id is searched."""

_encode: Final = msgspec.json.Encoder().encode
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_DECODER: Final[msgspec.json.Decoder[Message]] = msgspec.json.Decoder(Message)
_ID_OF_HEAD: Final = re.compile(
    rb'\{\s*(?:"cmd"\s*:\s*"\w{1,40}"\s*,\s*)?"id"\s*:\s*(-?[0-9]{1,16}|"[^"\\\x00-\x1f]{0,200}")\s*,'
)
_HALF_OF_A_PAIR: Final = re.compile("[\ud800-\udfff]")
_PROBLEM_LENGTH: Final = 300
MAX_DEPTH: Final = 100
"""Objects and arrays within one another; the readers of some languages refuse more unless they are asked to."""
_OUTSIDE: Final = re.compile(rb'"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"|[{}\[\]"]|[^ \t\r\n:,0-9+\-.eEaflnrstu]')
"""Outside of strings: a whole string, or one byte that means something, or one that cannot be there."""
_INSIDE: Final = re.compile(rb'["\\\x00-\x1f]')
_SPACE: Final = re.compile(rb"[ \t\r\n]*+")


class MessageParser:
    r"""Parses the stream of one connection.

    It keeps the unfinished message, which has at most ``max_message_size`` bytes, and what was fed last.

    >>> parser = MessageParser(max_job_size=65535)
    >>> parser.feed(b'{"cmd": "get_job"}{"cmd": "no')
    >>> [type(message).__name__ for message in parser.messages()]
    ['GetJob']
    >>> parser.feed(b'tify"}')
    >>> [type(message).__name__ for message in parser.messages()]
    ['NotifyDone']
    """

    def __init__(self, max_job_size: int) -> None:
        self._max_size = max_job_size + MESSAGE_OVERHEAD
        self._buffer = bytearray()
        self._scanner: ObjectScanner | None = None
        """The scanner of the message that has begun; None between messages."""
        self._dropped = 0
        """Bytes of that message that are not in the buffer any more."""
        self._head = b""
        """The first bytes of that message, if some were dropped."""
        self._has_failed = False
        self.last_size = 0
        """Bytes of the message that was taken last."""

    @property
    def buffered(self) -> int:
        """Bytes of messages that were not taken yet, as far as they are kept."""
        return len(self._buffer) + len(self._head)

    @property
    def is_within_message(self) -> bool:
        """Whether a message has begun and not ended; complete messages must have been taken before."""
        return self._scanner is not None

    def feed(self, data: bytes) -> None:
        """Add bytes of the stream; they are ignored after a message with the code `malformed`."""
        if not self._has_failed:
            self._buffer += data

    def messages(self) -> Iterator[Message | RefusedMessage]:
        """The messages that are complete, each once; the iteration may be left and begun again."""
        while (message := self.next_message()) is not None:
            yield message

    def next_message(self) -> Message | RefusedMessage | None:
        """The next message that is complete; None if there is none, and always after one that is `malformed`."""
        if self._has_failed:
            return None
        try:
            return self._next()
        except NotJson as error:
            return self._fail(str(error))

    def _next(self) -> Message | RefusedMessage | None:
        if self._scanner is None and not self._begin():
            return None
        assert self._scanner is not None
        end = self._scanner.find_end(self._buffer)
        if end < 0:
            self._drop_what_is_too_large()
            return None
        size, deepest = self._dropped + end, self._scanner.deepest
        with memoryview(self._buffer) as view:
            text = self._head if self._dropped else bytes(view[:end])
        self.last_size = len(text)
        del self._buffer[:end]
        self._scanner, self._dropped, self._head = None, 0, b""
        if size > self._max_size:
            return _skipped(
                text, ErrorCode.TOO_BIG, f"the message has {size} bytes; at most {self._max_size} are taken"
            )
        if deepest > MAX_DEPTH:
            return _skipped(
                text, ErrorCode.TOO_DEEP, f"the message has {deepest} levels; at most {MAX_DEPTH} are taken"
            )
        return _decode(text)

    def _begin(self) -> bool:
        """Skip white space; return whether a message begins behind it."""
        if space := _SPACE.match(self._buffer):
            del self._buffer[: space.end()]
        if not self._buffer:
            return False
        if self._buffer[0] != 0x7B:
            raise NotJson(f"a message begins with '{{', not with the byte {self._buffer[0]:#04x}")
        self._scanner = ObjectScanner()
        return True

    def _drop_what_is_too_large(self) -> None:
        """Keep the head only of a message that will be skipped."""
        assert self._scanner is not None
        if self._dropped + len(self._buffer) <= self._max_size:
            return
        if not self._dropped:
            self._head = bytes(self._buffer[:HEAD])
        self._dropped += len(self._buffer)
        self._scanner.drop(len(self._buffer))
        self._buffer.clear()

    def _fail(self, problem: str) -> RefusedMessage:
        self._has_failed = True
        self._scanner = None
        self._buffer.clear()
        return RefusedMessage(code=ErrorCode.MALFORMED, problem=problem)


def _decode(text: bytes) -> Message | RefusedMessage:
    """Decode a whole message. Raises NotJson."""
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError as error:
            raise NotJson(f"the message is not UTF-8: byte {text[error.start]:#04x}") from error
    try:
        return _DECODER.decode(text)
    except msgspec.DecodeError:
        return _decode_last_members(text)


def _decode_last_members(text: bytes) -> Message | RefusedMessage:
    """Decode a message of whose members with the same name the last counts, though an earlier one is wrong."""
    try:
        return _DECODER.decode(_encode(_MEMBERS.decode(text)))
    except msgspec.DecodeError as error:
        return _invalid(text, error)


def _invalid(text: bytes, error: msgspec.DecodeError) -> RefusedMessage:
    """The fault of a message that is JSON. Raises NotJson if it is none, wherever in it the error was noticed."""
    try:
        value = json.loads(text, parse_int=_small, parse_float=_nothing, parse_constant=_refuse)
    except ValueError as fault:
        raise NotJson(str(fault)) from fault
    id_, cmd = _usable_id(value.get("id")), value.get("cmd")
    if isinstance(cmd, str) and cmd not in COMMANDS:
        problem = f"there is no message {quoted(cmd)}; known are {', '.join(COMMANDS)}"
        return RefusedMessage(code=ErrorCode.UNKNOWN_COMMAND, problem=problem, id=id_)
    return RefusedMessage(
        code=ErrorCode.INVALID, problem=_worded(error), id=id_, cmd=cmd if isinstance(cmd, str) else None
    )


def _worded(error: msgspec.DecodeError) -> str:
    """The sentence of a decoder's error.

    >>> _worded(msgspec.ValidationError("Expected `str`, got `int` - at `$.queue`"))
    'queue: Expected `str`, got `int`'
    """
    if not isinstance(error, msgspec.ValidationError):
        return "a text holds half of a surrogate pair, which is not text"
    problem, _, place = str(error).partition(" - at `$")
    member = place.strip("`.")
    return (f"{member}: {problem}" if member else problem)[:_PROBLEM_LENGTH]


def _skipped(head: bytes, code: ErrorCode, problem: str) -> RefusedMessage:
    found = _ID_OF_HEAD.match(head)
    try:
        id_ = _usable_id(json.loads(found[1])) if found else None
    except ValueError:
        id_ = None
    return RefusedMessage(code=code, problem=problem, id=id_)


def _usable_id(value: Any) -> int | str | None:
    """An id that a reply can repeat."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) <= MAX_ID else None
    if isinstance(value, str) and len(value) <= MAX_ID_LENGTH and not _HALF_OF_A_PAIR.search(value):
        return value
    return None


def _small(digits: str) -> int | None:
    return int(digits) if len(digits) <= len(str(MAX_ID)) + 1 else None


def _nothing(_: str) -> None:
    return None


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


# ---------------------------------------------------------------- the end of an object


class NotJson(ValueError):
    """The bytes do not begin the text of any JSON object."""


class ObjectScanner:
    r"""The state of a search for the end of one object, or of the levels in any JSON value.

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
            self._position += 1  # an escaped byte ends no string; it may not have come yet
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
