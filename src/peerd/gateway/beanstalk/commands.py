"""The commands of beanstalkd's protocol as values, in the order of its protocol text, and the table of their lines.

Numbers are as the client gave them: a priority is 0 (most urgent) to 2^32-1, delays, TTRs, timeouts and pauses are
seconds.

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
"""How the line of a put begins. It is followed by a body, which is the matter of the parser."""


class Command(msgspec.Struct, frozen=True, gc=False):
    """What a client wants, or an error of it that has its place in the order of replies."""


class InvalidCommand(Command, frozen=True, gc=False):
    """A command that is refused because of its form: it is answered with ``reply``, and does nothing.

    ``counter`` is the statistic that counts it nevertheless, as beanstalkd does; None for most errors.
    """

    reply: bytes
    counter: str | None = None


class PutCommand(Command, frozen=True, gc=False):
    """Insert a job into the used tube. A TTR of 0 has become 1."""

    priority: int
    delay: int
    ttr: int
    body: bytes


class UseCommand(Command, frozen=True, gc=False):
    """Use a tube: later jobs are put into it, and peeked and kicked in it."""

    tube: str


class ReserveCommand(Command, frozen=True, gc=False):
    """Reserve the first ready job of the watched tubes; wait for it without end."""


class ReserveWithTimeoutCommand(Command, frozen=True, gc=False):
    """Reserve the first ready job of the watched tubes; wait ``timeout`` seconds for it, or not at all if it is 0."""

    timeout: int


class ReserveJobCommand(Command, frozen=True, gc=False):
    """Reserve a job by its id."""

    job_id: int


class DeleteCommand(Command, frozen=True, gc=False):
    """Delete a job that this client has reserved, or that no client has."""

    job_id: int


class ReleaseCommand(Command, frozen=True, gc=False):
    """Release a reserved job, with a new priority and delay."""

    job_id: int
    priority: int
    delay: int


class BuryCommand(Command, frozen=True, gc=False):
    """Bury a reserved job, with a new priority."""

    job_id: int
    priority: int


class TouchCommand(Command, frozen=True, gc=False):
    """Renew the deadline of a reservation."""

    job_id: int


class WatchCommand(Command, frozen=True, gc=False):
    """Add a tube to the watched ones."""

    tube: str


class IgnoreCommand(Command, frozen=True, gc=False):
    """Remove a tube from the watched ones."""

    tube: str


class PeekCommand(Command, frozen=True, gc=False):
    """Return a job by its id, without reserving it."""

    job_id: int


class PeekReadyCommand(Command, frozen=True, gc=False):
    """Return the job of the used tube that would be reserved next."""


class PeekDelayedCommand(Command, frozen=True, gc=False):
    """Return the delayed job of the used tube whose delay ends first."""


class PeekBuriedCommand(Command, frozen=True, gc=False):
    """Return the job of the used tube that was buried first."""


class KickCommand(Command, frozen=True, gc=False):
    """Make up to ``bound`` jobs of the used tube ready: buried ones, or delayed ones if there are no buried ones."""

    bound: int


class KickJobCommand(Command, frozen=True, gc=False):
    """Make a buried or delayed job ready."""

    job_id: int


class StatsJobCommand(Command, frozen=True, gc=False):
    """Return the statistics of a job."""

    job_id: int


class StatsTubeCommand(Command, frozen=True, gc=False):
    """Return the statistics of a tube."""

    tube: str


class StatsCommand(Command, frozen=True, gc=False):
    """Return the statistics of the server."""


class ListTubesCommand(Command, frozen=True, gc=False):
    """Return the names of all tubes."""


class ListTubeUsedCommand(Command, frozen=True, gc=False):
    """Return the name of the used tube."""


class ListTubesWatchedCommand(Command, frozen=True, gc=False):
    """Return the names of the watched tubes."""


class QuitCommand(Command, frozen=True, gc=False):
    """Close the connection."""


class PauseTubeCommand(Command, frozen=True, gc=False):
    """Let no job of a tube be reserved for some seconds; 0 ends a pause."""

    tube: str
    seconds: int


class AuthCommand(Command, frozen=True, gc=False):
    """Prove that the client may use the server. This command is not one of beanstalkd."""

    token: bytes


COUNTERS: Final[Mapping[type[Command], str]] = {
    PutCommand: "cmd-put",
    PeekCommand: "cmd-peek",
    PeekReadyCommand: "cmd-peek-ready",
    PeekDelayedCommand: "cmd-peek-delayed",
    PeekBuriedCommand: "cmd-peek-buried",
    ReserveCommand: "cmd-reserve",
    ReserveWithTimeoutCommand: "cmd-reserve-with-timeout",
    DeleteCommand: "cmd-delete",
    ReleaseCommand: "cmd-release",
    UseCommand: "cmd-use",
    WatchCommand: "cmd-watch",
    IgnoreCommand: "cmd-ignore",
    BuryCommand: "cmd-bury",
    KickCommand: "cmd-kick",
    TouchCommand: "cmd-touch",
    StatsCommand: "cmd-stats",
    StatsJobCommand: "cmd-stats-job",
    StatsTubeCommand: "cmd-stats-tube",
    ListTubesCommand: "cmd-list-tubes",
    ListTubeUsedCommand: "cmd-list-tube-used",
    ListTubesWatchedCommand: "cmd-list-tubes-watched",
    PauseTubeCommand: "cmd-pause-tube",
}
"""The statistic that counts the commands of a class, in the order of stats.

beanstalkd shows none for `reserve-job`, `kick-job` and `quit`.
"""


def counter_of(command: Command) -> str | None:
    """The statistic that counts this command, if there is one.

    >>> counter_of(DeleteCommand(7))
    'cmd-delete'
    """
    if isinstance(command, InvalidCommand):
        return command.counter
    return COUNTERS.get(type(command))


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


BAD_FORMAT: Final = InvalidCommand(replies.BAD_FORMAT)
UNKNOWN_COMMAND: Final = InvalidCommand(replies.UNKNOWN_COMMAND)

Arguments = Callable[[bytes], Command]
"""Makes a command of what follows its name; `BAD_FORMAT` if it does not fit."""


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
