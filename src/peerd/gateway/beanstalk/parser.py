"""The parser of beanstalkd's protocol: bytes in any pieces become commands in their order.

A line ends with CRLF and nothing else, and is at most 224 bytes long with it; a longer one is discarded up to its CRLF.
The line of a put is followed by its body, as many bytes as it says, and CRLF. If these two bytes are others, the put is
refused, and what follows them is read as a line. A body that is too large is discarded with its CRLF, so that client
and server stay in step. What is discarded is not kept first: a client costs no more memory than one line and one body,
and what it has sent ahead while its commands are not asked for.

In two cases beanstalkd itself waits for a line's end that it has passed: where a line has a CR that no LF follows, and
where the CRLF of a long line is split by one of its buffers. Here every line ends at its first CRLF.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from peerd.gateway.beanstalk import replies
from peerd.gateway.beanstalk.commands import (
    BAD_FORMAT,
    PUT,
    UINT32_MAX,
    AuthCommand,
    Command,
    InvalidCommand,
    PutCommand,
    QuitCommand,
    command_of,
)

MAX_LINE: Final = 224
"""The longest line, in bytes, with its CRLF."""
DEFAULT_MAX_JOB_SIZE: Final = 65535
"""beanstalkd's own limit of a body, in bytes."""

_CRLF: Final = b"\r\n"
_PUT_LINE: Final = re.compile(rb"put +(\d+) +(\d+) +(\d+) +(\d+)").fullmatch
_PUT_LINE_WITH_MORE: Final = re.compile(rb"put +(\d+) +(\d+) +(\d+) +(\d+)[^\0]*").fullmatch
_SMALL_CHUNK: Final = 4096
"""Chunks of a body that are smaller are joined as they come: each object would cost more than its bytes."""

_TOO_BIG: Final = InvalidCommand(replies.JOB_TOO_BIG, counter="cmd-put")
_EXPECTED_CRLF: Final = InvalidCommand(replies.EXPECTED_CRLF, counter="cmd-put")
_UNAUTHORIZED: Final = InvalidCommand(replies.UNAUTHORIZED)


class CommandParser:
    r"""Makes commands of the bytes of one connection.

    Commands are made as they are asked for. Bytes behind a command remain as they are until then, so that a session may
    ask for the next command when the one before has been answered.

    >>> parser = CommandParser()
    >>> parser.feed(b"use mail\r\nput 0 0 60 5\r\nhel")
    >>> list(parser)
    [UseCommand(tube='mail')]
    >>> parser.feed(b"lo\r\n")
    >>> parser.next_command()
    PutCommand(priority=0, delay=0, ttr=60, body=b'hello')
    """

    __slots__ = (
        "_buffer", "_chunks", "_locked", "_max_job_size", "_missing", "_pending", "_pending_size", "_position", "_put",
        "_refusal", "_step",
    )  # fmt: skip

    def __init__(self, max_job_size: int = DEFAULT_MAX_JOB_SIZE, *, require_auth: bool = False) -> None:
        """``max_job_size`` is the size of the largest body, in bytes.

        With ``require_auth`` every command but auth and quit is refused with UNAUTHORIZED until `authorize` is called,
        and no body is kept.
        """
        self._max_job_size = max_job_size
        self._locked = require_auth
        self._buffer = b""
        self._position = 0
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._step: Callable[[CommandParser], Command | None] = CommandParser._read_line
        self._put = (0, 0, 0)
        self._chunks: list[bytes] = []
        self._missing = 0
        self._refusal = _TOO_BIG

    def authorize(self) -> None:
        """Permit all commands from the next one on."""
        self._locked = False

    def feed(self, data: bytes) -> None:
        """Take bytes that have arrived."""
        if data:
            self._pending.append(data)
            self._pending_size += len(data)

    def __iter__(self) -> Iterator[Command]:
        """The commands that are complete."""
        while (command := self.next_command()) is not None:
            yield command

    def next_command(self) -> Command | None:
        """The next command; None if none is complete."""
        command = self._step(self)
        while command is None and self._pending:
            self._take_pending()
            command = self._step(self)
        return command

    @property
    def buffered(self) -> int:
        """How many bytes are held: those of an unfinished command, and those that no command was made of yet."""
        return len(self._buffer) - self._position + self._pending_size + sum(map(len, self._chunks))

    @property
    def is_within_line(self) -> bool:
        """Whether a line has begun and its end has not arrived. Asked for when there is no next command."""
        return self._step is CommandParser._discard_line or (
            self._step is CommandParser._read_line and self.buffered > 0
        )

    @property
    def is_within_body(self) -> bool:
        """Whether the line of a put has arrived and its body has not, be it kept or discarded."""
        return self._step in {CommandParser._read_body, CommandParser._discard_body}

    @property
    def is_keeping_body(self) -> bool:
        """Whether the line of a put has arrived, and its body is being kept."""
        return self._step is CommandParser._read_body

    def _take_pending(self) -> None:
        """Append what has arrived to the rest of the buffer, which is less than a line."""
        rest = self._buffer[self._position :]
        self._buffer = b"".join([rest, *self._pending]) if rest or len(self._pending) > 1 else self._pending[0]
        self._position = 0
        self._pending.clear()
        self._pending_size = 0

    # Each step makes a command of the beginning of the buffer. It returns None if it needs more than the buffer has.

    def _read_line(self) -> Command | None:
        buffer, start = self._buffer, self._position
        end = buffer.find(_CRLF, start, start + MAX_LINE)
        if end < 0:
            return None if len(buffer) - start < MAX_LINE else self._discard_line()
        self._position = end + 2
        if buffer.startswith(PUT, start):
            return self._read_put(start, end)
        command = command_of(buffer[start:end])
        if self._locked and not isinstance(command, AuthCommand | QuitCommand | InvalidCommand):
            return _UNAUTHORIZED
        return command

    def _discard_line(self) -> Command | None:
        end = self._buffer.find(_CRLF, self._position)
        if end < 0:
            self._step = CommandParser._discard_line
            self._position = len(self._buffer) - self._buffer.endswith(b"\r", self._position)
            return None
        self._step = CommandParser._read_line
        self._position = end + 2
        return BAD_FORMAT

    def _read_put(self, start: int, end: int) -> Command | None:
        line = _PUT_LINE(self._buffer, start, end)
        if line is None:
            return self._refuse_put(start, end)
        priority, delay, ttr, size = map(int, line.groups())
        if priority > UINT32_MAX or delay > UINT32_MAX or ttr > UINT32_MAX or size > UINT32_MAX:
            return BAD_FORMAT
        if size > self._max_job_size or self._locked:
            return self._refuse_body(size)
        body = self._position
        end = body + size
        if end + 2 > len(self._buffer):
            self._put = (priority, delay, ttr or 1)
            self._missing = size + 2
            self._step = CommandParser._read_body
            return self._read_body()
        self._position = end + 2
        if not self._buffer.startswith(_CRLF, end):
            return _EXPECTED_CRLF
        return PutCommand(priority, delay, ttr or 1, self._buffer[body:end])

    def _refuse_put(self, start: int, end: int) -> Command | None:
        """Answer a put with a faulty line. The size is looked at before what follows it, as beanstalkd does."""
        line = _PUT_LINE_WITH_MORE(self._buffer, start, end)
        if line is None:
            return BAD_FORMAT
        *others, size = map(int, line.groups())
        if max(*others, size) > UINT32_MAX or size <= self._max_job_size:
            return BAD_FORMAT
        return self._refuse_body(size)

    def _refuse_body(self, size: int) -> Command | None:
        self._refusal = _UNAUTHORIZED if self._locked else _TOO_BIG
        self._missing = size + 2
        self._step = CommandParser._discard_body
        return self._discard_body()

    def _read_body(self) -> Command | None:
        chunk = self._take(self._missing)
        if not chunk:
            return None
        if self._chunks and len(chunk) < _SMALL_CHUNK and len(self._chunks[-1]) < _SMALL_CHUNK:
            self._chunks[-1] += chunk
        else:
            self._chunks.append(chunk)
        if self._missing:
            return None
        self._step = CommandParser._read_line
        end = b"".join(self._chunks[-2:])  # the CRLF may be in two chunks; a large body is copied once
        body = b"".join([*self._chunks[:-2], end[:-2]])
        self._chunks.clear()
        return PutCommand(*self._put, body) if end.endswith(_CRLF) else _EXPECTED_CRLF

    def _discard_body(self) -> Command | None:
        self._take(self._missing)
        if self._missing:
            return None
        self._step = CommandParser._read_line
        return self._refusal

    def _take(self, size: int) -> bytes:
        """The next bytes of the buffer, at most so many; they are no longer missing."""
        chunk = self._buffer[self._position : self._position + size]
        self._position += len(chunk)
        self._missing -= len(chunk)
        return chunk
