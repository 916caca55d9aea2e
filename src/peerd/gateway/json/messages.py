"""The messages of the JSON protocol, as structs that check their members; docs/protocol.md describes them.

The name of a class's tag is the `cmd` of its message. The gateway decodes these structs, and the Python client encodes
them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from peerd.domain.quoting import quoted
from peerd.domain.task import DEFAULT_PRIORITY, PRIORITY_RANGE, QUEUE_NAME, SPAN_LIMIT

DEFAULT_QUEUE: Final = "default"
MAX_ID: Final = 2**53
"""The largest `id`: what every language's JSON library reads exactly."""
MAX_ID_LENGTH: Final = 200
MAX_QUEUES: Final = 100
"""Queues that one get_job may name."""

NOTHING: Final = msgspec.Raw(b"")
"""For an optional member that may hold any JSON value, if it is left out."""

MessageId = Annotated[int, Meta(ge=-MAX_ID, le=MAX_ID)] | Annotated[str, Meta(max_length=MAX_ID_LENGTH)]
JobNumber = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Delay = Annotated[int, Meta(ge=0, lt=int(SPAN_LIMIT))]
Pause = Annotated[float, Meta(ge=0, lt=SPAN_LIMIT)]
Period = Annotated[float, Meta(gt=0, lt=SPAN_LIMIT)]


class ErrorCode(StrEnum):
    """The codes of error replies."""

    NO_WORK = "no_work"
    INVALID = "invalid"
    UNKNOWN_COMMAND = "unknown_command"
    TOO_BIG = "too_big"
    TOO_DEEP = "too_deep"
    NOT_HELD = "not_held"
    WHICH_JOB = "which_job"
    DEADLINE_SOON = "deadline_soon"
    TOO_MANY_WAITING = "too_many_waiting"
    QUEUE_FULL = "queue_full"
    DRAINING = "draining"
    UNAVAILABLE = "unavailable"
    UNAUTHORIZED = "unauthorized"
    MALFORMED = "malformed"

    @property
    def closes(self) -> bool:
        """Whether the connection is closed after it."""
        return self in (ErrorCode.UNAUTHORIZED, ErrorCode.MALFORMED)


class JsonMessage(msgspec.Struct, tag_field="cmd", forbid_unknown_fields=True, omit_defaults=True):
    """What all messages have. `id` asks for a reply that repeats it."""

    id: MessageId | None = None

    @property
    def cmd(self) -> str:
        """The name of the message.

        >>> GetJob().cmd
        'get_job'
        """
        return str(self.__struct_config__.tag)


class AddJob(JsonMessage, tag="add_job", kw_only=True):
    """Put a job into a queue; the job is its JSON text as it came."""

    job: msgspec.Raw
    queue: str | None = DEFAULT_QUEUE
    priority: Annotated[int, Meta(ge=PRIORITY_RANGE[0], le=PRIORITY_RANGE[1])] | None = DEFAULT_PRIORITY
    delay: Delay | None = 0
    ttr: Annotated[int, Meta(ge=1, lt=int(SPAN_LIMIT))] | None = None
    unique: str | None = None
    unique_for: Literal["unfinished", "forever"] | Period | None = "unfinished"
    max_attempts: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    name: str | None = ""

    def __post_init__(self) -> None:
        if self.queue is not None:
            check_queue_name(self.queue)


class GetJob(JsonMessage, tag="get_job", kw_only=True):
    """Take the best job of one queue or of several; wait for one so many seconds."""

    queue: str | None = None
    queues: Annotated[tuple[str, ...], Meta(min_length=1, max_length=MAX_QUEUES)] | None = None
    wait: Annotated[float, Meta(ge=0)] | None = 0.0

    def __post_init__(self) -> None:
        if self.queue is not None and self.queues is not None:
            raise ValueError("give queue or queues, not both")
        for name in self.wanted:
            check_queue_name(name)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The queues to take a job from, each once, in their order.

        >>> GetJob(queues=("b", "a", "b")).wanted, GetJob().wanted
        (('b', 'a'), ('default',))
        """
        if self.queues is not None:
            return tuple(dict.fromkeys(self.queues))
        return (DEFAULT_QUEUE if self.queue is None else self.queue,)


class HeldJobMessage(JsonMessage, kw_only=True):
    """What the messages about a held job have; `job_id` may be left out while the connection holds one job only."""

    job_id: JobNumber | None = None


class NotifyDone(HeldJobMessage, tag="notify", kw_only=True):
    """The job is done; `result` is kept with it."""

    result: msgspec.Raw = NOTHING

    @property
    def result_text(self) -> str | None:
        """The JSON text of the result, if one is given.

        >>> NotifyDone(result=msgspec.Raw(b"[1]")).result_text, NotifyDone(result=msgspec.Raw(b"null")).result_text
        ('[1]', None)
        """
        text = bytes(self.result)
        return None if text in (b"", b"null") else text.decode()


class TouchJob(HeldJobMessage, tag="touch", kw_only=True):
    """Renew the time limit of a job, and write its progress."""

    progress: Annotated[float, Meta(ge=0, le=1)] | None = None
    note: Annotated[str, Meta(max_length=255)] | None = None

    def __post_init__(self) -> None:
        if self.note is not None and self.progress is None:
            raise ValueError("note: it goes with progress, which is missing")


class FailJob(HeldJobMessage, tag="fail", kw_only=True):
    """End the attempt without success. `retry` is seconds until the next one, or False: there is none."""

    reason: str | None = None
    retry: Literal[False] | Pause | None = None


class ReleaseJob(HeldJobMessage, tag="release", kw_only=True):
    """Give the job back; it may be taken again after `delay` seconds."""

    delay: Delay | None = 0


class ShowToken(JsonMessage, tag="auth", kw_only=True):
    """Show the token that the gateway requires."""

    token: str


Message = AddJob | GetJob | NotifyDone | TouchJob | FailJob | ReleaseJob | ShowToken
COMMANDS: Final = ("add_job", "get_job", "notify", "touch", "fail", "release", "auth")


class RefusedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is answered with an error and changes nothing."""

    code: ErrorCode
    problem: str
    id: int | str | None = None
    cmd: str | None = None


def check_queue_name(name: str) -> None:
    """Raise ValueError for a name that no queue can have."""
    if QUEUE_NAME.fullmatch(name) is None:
        raise ValueError(f"queue: {quoted(name)} is not 1 to 200 of A-Z a-z 0-9 - + / ; . $ _ ( ) : @")
