"""The commands of beanstalkd's protocol: bytes in any pieces become commands in their order.

Numbers are as the client gave them: a priority is 0 (most urgent) to 2^32-1, delays, TTRs, timeouts and pauses are
seconds.

A line ends with CRLF and nothing else, and is at most 224 bytes long with it; a longer one is discarded up to its CRLF.
In two cases beanstalkd itself waits for a line's end that it has passed: where a line has a CR that no LF follows, and
where the CRLF of a long line is split by one of its buffers. Here every line ends at its first CRLF.

beanstalkd finds a command by the *beginning* of the line, in the order of the table `READERS`: `quitfoo` is quit,
`pause-tubedefault 0` pauses, and `peek-readyX` is peek-ready with an argument too many. A beginning that ends with a
blank needs an argument: `kick` alone is unknown.

Numbers are decimal digits after any number of blanks, in the range of their type. beanstalkd reads two of them less
strictly, and so do we: kick reads its number as the C function strtoul does, and reserve-with-timeout ignores what
follows its number.

The line of a put is followed by its body, as many bytes as it says, and CRLF. If these two bytes are others, the put is
refused, and what follows them is read as a line. A body that is too large is discarded with its CRLF, so that client
and server stay in step. What is discarded is not kept first: a client costs no more memory than one line and one body,
and what it has sent ahead while its commands are not asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from peerd.gateway.beanstalk import replies

NEUTRAL_PRIORITY: Final = 65_536
"""The priority of beanstalkd's clients that is 0 in the table: the default of several of them."""
UINT32_MAX: Final = 2**32 - 1
UINT64_MAX: Final = 2**64 - 1
INT_MAX: Final = 2**31 - 1
MAX_TUBE_NAME: Final = 200
"""The longest name of a tube, in bytes."""
_NAME_CHARACTERS: Final = rb"[A-Za-z0-9\-+/;.$_()]"
_TUBE_NAME: Final = re.compile(rb"(?!-)%b{1,%d}" % (_NAME_CHARACTERS, MAX_TUBE_NAME)).fullmatch
_LEADING_NUMBER: Final = re.compile(rb" *(\d+)").match
_TWO_NUMBERS: Final = re.compile(rb" *(\d+) +(\d+)").fullmatch
_THREE_NUMBERS: Final = re.compile(rb" *(\d+) +(\d+) +(\d+)").fullmatch
_TUBE_AND_NUMBER: Final = re.compile(rb" *(%b+) +(\d+)" % _NAME_CHARACTERS).fullmatch
_STRTOUL: Final = re.compile(rb"[ \t\n\v\f\r]*([+-]?)(\d+)").match
PUT: Final = b"put "
"""How the line of a put begins, which is followed by a body."""


_COUNTED: Final = (
    "put peek peek-ready peek-delayed peek-buried reserve reserve-with-timeout delete release use watch ignore bury "
    "kick touch stats stats-job stats-tube list-tubes list-tube-used list-tubes-watched pause-tube"
)
COUNTERS: Final[Mapping[str, str]] = {name: f"cmd-{name}" for name in _COUNTED.split()}
"""The statistics that count commands, in their order; beanstalkd has none for `reserve-job`, `kick-job` and `quit`."""


class Command(msgspec.Struct, frozen=True, gc=False):
    """What a client wants, or an error of it that has its place in the order of replies.

    Attributes:
        name: as in the protocol's text, or `invalid`: a command that is refused because of its form.
        arguments: of the function that executes it; of an invalid command, its reply.
        counted_as: the name of the commands among which it is counted. Of most invalid ones it is `invalid`, which is
            not counted; beanstalkd counts a few of them nevertheless.
    """

    name: str
    arguments: tuple[Any, ...]
    counted_as: str

    @property
    def counter(self) -> str | None:
        """The statistic that counts this command, if there is one.

        >>> command_of(b"delete 7").counter
        'cmd-delete'
        """
        return COUNTERS.get(self.counted_as)

    @property
    def body(self) -> bytes:
        """The job that a put brings."""
        body: bytes = self.arguments[-1] if self.name == "put" else b""
        return body


def command_with(name: str, *arguments: Any) -> Command:
    """A command with its arguments."""
    return Command(name, arguments, name)


def invalid(reply: bytes, counted_as: str = "invalid") -> Command:
    """A command that is answered with a reply, and does nothing."""
    return Command("invalid", (reply,), counted_as)


# ---------------------------------------------------------------- priorities


def to_task_priority(priority: int) -> int:
    """The priority of a task that a client's priority becomes.

    >>> to_task_priority(65_536), to_task_priority(0)
    (0, 65536)
    """
    return NEUTRAL_PRIORITY - priority


def to_client_priority(priority: int) -> int:
    """The priority that clients see of a task; a task may be more urgent than any job of theirs.

    >>> to_client_priority(0), to_client_priority(10**6)
    (65536, 0)
    """
    return min(max(NEUTRAL_PRIORITY - priority, 0), UINT32_MAX)


# ---------------------------------------------------------------- the lines of commands


BAD_FORMAT: Final = invalid(replies.BAD_FORMAT)
UNKNOWN_COMMAND: Final = invalid(replies.UNKNOWN_COMMAND)
WITHOUT_TOKEN: Final = frozenset({"auth", "quit", "invalid"})
"""Commands that need no token."""

Reader = Callable[[str, bytes], Command]
"""Makes a command of its name and of what follows that; `BAD_FORMAT` if it does not fit."""


def _no(name: str, arguments: bytes) -> Command:
    """A command without arguments."""
    return BAD_FORMAT if arguments else command_with(name)


def _any(name: str, _: bytes) -> Command:
    """A command that ignores what follows its name."""
    return command_with(name)


def _job_id(name: str, arguments: bytes) -> Command:
    """A command that names a job: a number of 64 bits."""
    digits = arguments if arguments.isdigit() else arguments.lstrip(b" ")
    if not digits.isdigit() or (job_id := int(digits)) > UINT64_MAX:
        return BAD_FORMAT
    return command_with(name, job_id)


def _tube(name: str, arguments: bytes) -> Command:
    """A command that names a tube."""
    return command_with(name, arguments.decode("ascii")) if _TUBE_NAME(arguments) else BAD_FORMAT


def _job_id_and(numbers: Callable[[bytes], re.Match[bytes] | None]) -> Reader:
    """A command that names a job, and has other numbers, of 32 bits."""

    def read(name: str, arguments: bytes) -> Command:
        found = numbers(arguments)
        if found is None:
            return BAD_FORMAT
        job_id, *others = map(int, found.groups())
        if job_id > UINT64_MAX or max(others) > UINT32_MAX:
            return BAD_FORMAT
        return command_with(name, job_id, *others)

    return read


def _timeout(name: str, arguments: bytes) -> Command:
    found = _LEADING_NUMBER(arguments)
    if found is None or (timeout := int(found[1])) > INT_MAX:
        return BAD_FORMAT
    return command_with(name, timeout)


def _bound(name: str, arguments: bytes) -> Command:
    """The bound of kick, as strtoul reads it: a sign is permitted, and only the low 32 bits of the number remain."""
    found = _STRTOUL(arguments)
    if found is None or (bound := int(found[2])) > UINT64_MAX:
        return BAD_FORMAT
    return command_with(name, (-bound if found[1] == b"-" else bound) & UINT32_MAX)


def _pause(name: str, arguments: bytes) -> Command:
    found = _TUBE_AND_NUMBER(arguments)
    if found is None or (seconds := int(found[2])) > UINT32_MAX:
        return BAD_FORMAT
    if not _TUBE_NAME(found[1]):
        return invalid(replies.BAD_FORMAT, counted_as=name)
    return command_with(name, found[1].decode("ascii"), seconds)


def _token(name: str, arguments: bytes) -> Command:
    return command_with(name, arguments) if arguments else BAD_FORMAT


READERS: Final[Mapping[bytes, Reader]] = {
    b"peek ": _job_id,
    b"peek-ready": _no,
    b"peek-delayed": _no,
    b"peek-buried": _no,
    b"reserve-with-timeout ": _timeout,
    b"reserve-job ": _job_id,
    b"reserve": _no,
    b"delete ": _job_id,
    b"release ": _job_id_and(_THREE_NUMBERS),
    b"bury ": _job_id_and(_TWO_NUMBERS),
    b"kick ": _bound,
    b"kick-job ": _job_id,
    b"touch ": _job_id,
    b"stats-job ": _job_id,
    b"stats-tube ": _tube,
    b"stats": _no,
    b"use ": _tube,
    b"watch ": _tube,
    b"ignore ": _tube,
    b"list-tubes-watched": _no,
    b"list-tube-used": _no,
    b"list-tubes": _no,
    b"quit": _any,
    b"pause-tube": _pause,
    b"auth ": _token,
}
"""How the lines of each command begin, and what makes a command of the rest."""
_NAMES: Final = {beginning: beginning.decode().strip() for beginning in READERS}


def command_of(line: bytes) -> Command:
    r"""The command of a line that is no put, without its CRLF.

    >>> command_of(b"delete 7")
    Command(name='delete', arguments=(7,), counted_as='delete')
    >>> command_of(b"delete x").arguments
    (b'BAD_FORMAT\r\n',)
    """
    word, blank, arguments = line.partition(b" ")
    beginning = word + blank
    read = READERS.get(beginning)
    if read is not None and b"\0" not in line:
        return read(_NAMES[beginning], arguments)
    return _command_by_beginning(line)


def _command_by_beginning(line: bytes) -> Command:
    """The command of a line whose name is not followed by a blank or by nothing."""
    if b"\0" in line:
        return BAD_FORMAT
    for beginning, read in READERS.items():
        if line.startswith(beginning):
            return read(_NAMES[beginning], line[len(beginning) :])
    return UNKNOWN_COMMAND


# ---------------------------------------------------------------- the parser


MAX_LINE: Final = 224
"""The longest line, in bytes, with its CRLF."""
DEFAULT_MAX_JOB_SIZE: Final = 65535
"""beanstalkd's own limit of a body, in bytes."""

_CRLF: Final = b"\r\n"
_PUT_LINE: Final = re.compile(rb"put +(\d+) +(\d+) +(\d+) +(\d+)").fullmatch
_PUT_LINE_WITH_MORE: Final = re.compile(rb"put +(\d+) +(\d+) +(\d+) +(\d+)[^\0]*").fullmatch
_SMALL_CHUNK: Final = 4096
"""Chunks of a body that are smaller are joined as they come: each object would cost more than its bytes."""

TOO_BIG: Final = invalid(replies.JOB_TOO_BIG, counted_as="put")
_EXPECTED_CRLF: Final = invalid(replies.EXPECTED_CRLF, counted_as="put")
_UNAUTHORIZED: Final = invalid(replies.UNAUTHORIZED)


class CommandParser:
    r"""Makes commands of the bytes of one connection.

    Commands are made as they are asked for. Bytes behind a command remain as they are until then, so that a session may
    ask for the next command when the one before has been answered.

    >>> parser = CommandParser()
    >>> parser.feed(b"use mail\r\nput 0 0 60 5\r\nhel")
    >>> list(parser)
    [Command(name='use', arguments=('mail',), counted_as='use')]
    >>> parser.feed(b"lo\r\n")
    >>> parser.next_command()
    Command(name='put', arguments=(0, 0, 60, b'hello'), counted_as='put')
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
        self._refusal = TOO_BIG

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
        if self._locked and command.name not in WITHOUT_TOKEN:
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
        return command_with("put", priority, delay, ttr or 1, self._buffer[body:end])

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
        self._refusal = _UNAUTHORIZED if self._locked else TOO_BIG
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
        return command_with("put", *self._put, body) if end.endswith(_CRLF) else _EXPECTED_CRLF

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
