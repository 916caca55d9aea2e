"""The commands of beanstalkd's protocol as values, in the order in which its protocol text describes them.

Numbers are as the client gave them: a priority is 0 (most urgent) to 2^32-1, delays, TTRs, timeouts and pauses are
seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec


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
    UseCommand: "cmd-use",
    ReserveCommand: "cmd-reserve",
    ReserveWithTimeoutCommand: "cmd-reserve-with-timeout",
    DeleteCommand: "cmd-delete",
    ReleaseCommand: "cmd-release",
    BuryCommand: "cmd-bury",
    TouchCommand: "cmd-touch",
    WatchCommand: "cmd-watch",
    IgnoreCommand: "cmd-ignore",
    PeekCommand: "cmd-peek",
    PeekReadyCommand: "cmd-peek-ready",
    PeekDelayedCommand: "cmd-peek-delayed",
    PeekBuriedCommand: "cmd-peek-buried",
    KickCommand: "cmd-kick",
    StatsJobCommand: "cmd-stats-job",
    StatsTubeCommand: "cmd-stats-tube",
    StatsCommand: "cmd-stats",
    ListTubesCommand: "cmd-list-tubes",
    ListTubeUsedCommand: "cmd-list-tube-used",
    ListTubesWatchedCommand: "cmd-list-tubes-watched",
    PauseTubeCommand: "cmd-pause-tube",
}
"""The statistic that counts the commands of a class. beanstalkd shows none for `reserve-job`, `kick-job` and `quit`."""


def counter_of(command: Command) -> str | None:
    """The statistic that counts this command, if there is one.

    >>> counter_of(DeleteCommand(7))
    'cmd-delete'
    """
    if isinstance(command, InvalidCommand):
        return command.counter
    return COUNTERS.get(type(command))
