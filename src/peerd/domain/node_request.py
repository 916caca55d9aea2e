"""Requests to a node: what one node, or an application, may ask of the agent of another, and the checks of it.

Only what the command line on that machine can do may be requested. The arguments are checked where the request is made
and again where it is carried out: a row of the table can be written by any program.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from peerd.domain.errors import InvalidFilter
from peerd.domain.quoting import quoted
from peerd.domain.task import NAME_LIMIT, check_text

MAX_KINDS: Final = 100
"""Kinds that a reload names."""
MAX_PROCESSES_OF_KIND: Final = 1_000
"""Processes; a test compares it with the limit of the master."""
MAX_WAIT: Final = 86_400.0
"""Seconds that an agent may wait for the end of a reload or of scaling."""
MAX_RESULT_BYTES: Final = 1024 * 1024
"""Bytes of JSON."""


class NodeRequestStatus(StrEnum):
    """The state of a request to a node."""

    WAITING = "waiting"  # for the node's agent
    RUNNING = "running"  # the agent has taken it
    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"  # no agent has taken it in time, and none will


class _Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class StateArguments(_Arguments, frozen=True, tag="state"):
    """Read the live state of the node's processes from its master."""


class ReloadArguments(_Arguments, frozen=True, tag="reload"):
    """Replace the processes of these kinds, of all without a name, and wait so many seconds for the end of it."""

    kinds: tuple[str, ...] | None = None
    config_only: bool = False
    wait: float = MAX_WAIT

    def __post_init__(self) -> None:
        if self.kinds is not None:
            if not 0 < len(self.kinds) <= MAX_KINDS:
                raise InvalidFilter("kinds", f"are 1 to {MAX_KINDS} names; leave them out to reload everything")
            for kind in self.kinds:
                _check_kind("kinds", kind)
        _check_wait(self.wait)


class ScaleArguments(_Arguments, frozen=True, tag="scale"):
    """Change the number of processes of a kind, and wait so many seconds until they run."""

    kind: str
    count: int
    wait: float = MAX_WAIT

    def __post_init__(self) -> None:
        _check_kind("kind", self.kind)
        if isinstance(self.count, bool) or not 0 <= self.count <= MAX_PROCESSES_OF_KIND:
            raise InvalidFilter("count", f"{quoted(self.count)} is not a number from 0 to {MAX_PROCESSES_OF_KIND}")
        _check_wait(self.wait)


class StackArguments(_Arguments, frozen=True, tag="stack"):
    """Read the stack of a task that the process with this process id runs."""

    task_id: int
    pid: int


NodeCommand = StateArguments | ReloadArguments | ScaleArguments | StackArguments
"""A command with its arguments; the tag is its name."""
_DECODER: Final[msgspec.json.Decoder[NodeCommand]] = msgspec.json.Decoder(NodeCommand)


def command_name(command: NodeCommand) -> str:
    """The name of a command.

    >>> command_name(ScaleArguments("video", 3))
    'scale'
    """
    return str(type(command).__struct_config__.tag)


def encode_command(command: NodeCommand) -> str:
    """A command as the table has it.

    >>> encode_command(ScaleArguments("video", 3, wait=5.0))
    '{"type":"scale","kind":"video","count":3,"wait":5.0}'
    """
    return msgspec.json.encode(command).decode()


def decode_command(text: str) -> NodeCommand:
    """The reverse of `encode_command`.

    Raises:
        ValueError: it is no command, or its arguments are not allowed.

    >>> decode_command('{"type":"halt"}')
    Traceback (most recent call last):
    ValueError: this is no request that a node can carry out: Invalid value 'halt' - at `$.type`
    """
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this is no request that a node can carry out: {error}") from None


def _check_kind(field: str, kind: object) -> None:
    if not isinstance(kind, str):
        raise InvalidFilter(field, f"{quoted(kind)} is not text")
    try:
        check_text(field, kind, NAME_LIMIT)
    except ValueError as error:
        raise InvalidFilter(field, getattr(error, "problem", str(error))) from None
    if not kind:
        raise InvalidFilter(field, "a kind has a name, such as video")


def _check_wait(wait: object) -> None:
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 < wait <= MAX_WAIT:
        raise InvalidFilter("timeout", f"{quoted(wait)} is not a time of more than 0 s and at most a day")
