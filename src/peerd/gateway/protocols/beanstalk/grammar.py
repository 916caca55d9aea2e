"""The table of beanstalkd's commands: how a line begins, what follows, and what command it is.

A line is what stands before its CRLF. beanstalkd finds a command by the *beginning* of the line, in the order of the
table: `quitfoo` is quit, `pause-tubedefault 0` pauses, and `peek-readyX` is peek-ready with an argument too many. A
beginning that ends with a blank needs an argument: `kick` alone is unknown.

Numbers are decimal digits after any number of blanks, in the range of their type. beanstalkd reads two of them less
strictly, and so do we: kick reads its number as the C function strtoul does, and reserve-with-timeout ignores what
follows its number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from peerd.gateway.protocols.beanstalk import replies
from peerd.gateway.protocols.beanstalk.commands import (
    AuthCommand,
    BuryCommand,
    Command,
    DeleteCommand,
    IgnoreCommand,
    InvalidCommand,
    KickCommand,
    KickJobCommand,
    ListTubesCommand,
    ListTubesWatchedCommand,
    ListTubeUsedCommand,
    PauseTubeCommand,
    PeekBuriedCommand,
    PeekCommand,
    PeekDelayedCommand,
    PeekReadyCommand,
    QuitCommand,
    ReleaseCommand,
    ReserveCommand,
    ReserveJobCommand,
    ReserveWithTimeoutCommand,
    StatsCommand,
    StatsJobCommand,
    StatsTubeCommand,
    TouchCommand,
    UseCommand,
    WatchCommand,
)

UINT32_MAX: Final = 2**32 - 1
UINT64_MAX: Final = 2**64 - 1
INT_MAX: Final = 2**31 - 1
MAX_TUBE_NAME: Final = 200
"""The longest name of a tube, in bytes."""

BAD_FORMAT: Final = InvalidCommand(replies.BAD_FORMAT)
UNKNOWN_COMMAND: Final = InvalidCommand(replies.UNKNOWN_COMMAND)

Arguments = Callable[[bytes], Command]
"""Makes a command of what follows its name; `BAD_FORMAT` if it does not fit."""

_NAME_CHARACTERS: Final = rb"[A-Za-z0-9\-+/;.$_()]"
_TUBE_NAME: Final = re.compile(rb"(?!-)%b{1,%d}" % (_NAME_CHARACTERS, MAX_TUBE_NAME)).fullmatch
_LEADING_NUMBER: Final = re.compile(rb" *(\d+)").match
_TWO_NUMBERS: Final = re.compile(rb" *(\d+) +(\d+)").fullmatch
_THREE_NUMBERS: Final = re.compile(rb" *(\d+) +(\d+) +(\d+)").fullmatch
_TUBE_AND_NUMBER: Final = re.compile(rb" *(%b+) +(\d+)" % _NAME_CHARACTERS).fullmatch
_STRTOUL: Final = re.compile(rb"[ \t\n\v\f\r]*([+-]?)(\d+)").match


def _no(command: Command) -> Arguments:
    """A command without arguments."""
    return lambda arguments: BAD_FORMAT if arguments else command


def _any(command: Command) -> Arguments:
    """A command that ignores what follows its name."""
    return lambda _: command


def _job_id(command: type[Command]) -> Arguments:
    """A command that names a job: a number of 64 bits."""

    def read(arguments: bytes) -> Command:
        digits = arguments if arguments.isdigit() else arguments.lstrip(b" ")
        if not digits.isdigit() or (job_id := int(digits)) > UINT64_MAX:
            return BAD_FORMAT
        return command(job_id)

    return read


def _tube(command: type[Command]) -> Arguments:
    """A command that names a tube."""

    def read(arguments: bytes) -> Command:
        return command(arguments.decode("ascii")) if _TUBE_NAME(arguments) else BAD_FORMAT

    return read


def _release(arguments: bytes) -> Command:
    if (found := _THREE_NUMBERS(arguments)) is None:
        return BAD_FORMAT
    job_id, priority, delay = map(int, found.groups())
    if job_id > UINT64_MAX or priority > UINT32_MAX or delay > UINT32_MAX:
        return BAD_FORMAT
    return ReleaseCommand(job_id, priority, delay)


def _bury(arguments: bytes) -> Command:
    if (found := _TWO_NUMBERS(arguments)) is None:
        return BAD_FORMAT
    job_id, priority = map(int, found.groups())
    if job_id > UINT64_MAX or priority > UINT32_MAX:
        return BAD_FORMAT
    return BuryCommand(job_id, priority)


def _timeout(arguments: bytes) -> Command:
    found = _LEADING_NUMBER(arguments)
    if found is None or (timeout := int(found[1])) > INT_MAX:
        return BAD_FORMAT
    return ReserveWithTimeoutCommand(timeout)


def _bound(arguments: bytes) -> Command:
    """The bound of kick, as strtoul reads it: a sign is permitted, and only the low 32 bits of the number remain."""
    found = _STRTOUL(arguments)
    if found is None or (bound := int(found[2])) > UINT64_MAX:
        return BAD_FORMAT
    return KickCommand((-bound if found[1] == b"-" else bound) & UINT32_MAX)


def _pause(arguments: bytes) -> Command:
    found = _TUBE_AND_NUMBER(arguments)
    if found is None or (seconds := int(found[2])) > UINT32_MAX:
        return BAD_FORMAT
    if not _TUBE_NAME(found[1]):
        return InvalidCommand(replies.BAD_FORMAT, counter="cmd-pause-tube")
    return PauseTubeCommand(found[1].decode("ascii"), seconds)


def _token(arguments: bytes) -> Command:
    return AuthCommand(arguments) if arguments else BAD_FORMAT


class CommandForm(NamedTuple):
    """How the lines of a command begin, and what makes a command of the rest."""

    beginning: bytes
    arguments: Arguments


PUT: Final = b"put "
"""How the line of a put begins. It is followed by a body, which is the matter of the parser."""

COMMANDS: Final = (
    CommandForm(b"peek ", _job_id(PeekCommand)),
    CommandForm(b"peek-ready", _no(PeekReadyCommand())),
    CommandForm(b"peek-delayed", _no(PeekDelayedCommand())),
    CommandForm(b"peek-buried", _no(PeekBuriedCommand())),
    CommandForm(b"reserve-with-timeout ", _timeout),
    CommandForm(b"reserve-job ", _job_id(ReserveJobCommand)),
    CommandForm(b"reserve", _no(ReserveCommand())),
    CommandForm(b"delete ", _job_id(DeleteCommand)),
    CommandForm(b"release ", _release),
    CommandForm(b"bury ", _bury),
    CommandForm(b"kick ", _bound),
    CommandForm(b"kick-job ", _job_id(KickJobCommand)),
    CommandForm(b"touch ", _job_id(TouchCommand)),
    CommandForm(b"stats-job ", _job_id(StatsJobCommand)),
    CommandForm(b"stats-tube ", _tube(StatsTubeCommand)),
    CommandForm(b"stats", _no(StatsCommand())),
    CommandForm(b"use ", _tube(UseCommand)),
    CommandForm(b"watch ", _tube(WatchCommand)),
    CommandForm(b"ignore ", _tube(IgnoreCommand)),
    CommandForm(b"list-tubes-watched", _no(ListTubesWatchedCommand())),
    CommandForm(b"list-tube-used", _no(ListTubeUsedCommand())),
    CommandForm(b"list-tubes", _no(ListTubesCommand())),
    CommandForm(b"quit", _any(QuitCommand())),
    CommandForm(b"pause-tube", _pause),
    CommandForm(b"auth ", _token),
)

_BY_FIRST_WORD: Final[Mapping[bytes, Arguments]] = {form.beginning: form.arguments for form in COMMANDS}
"""A line begins with one of these up to its first blank, or as a whole; the few others are searched in the table."""


def command_of(line: bytes) -> Command:
    r"""The command of a line that is no put, without its CRLF.

    >>> command_of(b"delete 7")
    DeleteCommand(job_id=7)
    >>> command_of(b"delete x").reply
    b'BAD_FORMAT\r\n'
    """
    word, blank, arguments = line.partition(b" ")
    read = _BY_FIRST_WORD.get(word + blank)
    if read is not None and b"\0" not in line:
        return read(arguments)
    return _command_by_beginning(line)


def _command_by_beginning(line: bytes) -> Command:
    if b"\0" in line:
        return BAD_FORMAT
    for beginning, read in COMMANDS:
        if line.startswith(beginning):
            return read(line[len(beginning) :])
    return UNKNOWN_COMMAND
