"""Messages out, replies in: the client's side of the JSON protocol, and its errors, without input or output.

Arguments of Python become messages, which are checked before anything is sent.
"""

from __future__ import annotations

import base64
import json
import math
import os
from itertools import count
from typing import Any, Final, TypedDict

import msgspec

from peerd.domain.errors import InvalidTask, PeerdError
from peerd.domain.quoting import quoted
from peerd.domain.task import NON_FINITE_PROBLEM, contains_non_finite
from peerd.domain.units import format_duration, parse_duration
from peerd.gateway.json.messages import (
    NOTHING,
    AddJob,
    ErrorCode,
    FailJob,
    GetJob,
    Message,
    NotifyDone,
    ReleaseJob,
    TouchJob,
)

MAX_REPLY: Final = 256 * 1024 * 1024
"""Bytes; a longer line is not a reply."""
Duration = str | float
"""Seconds, or text such as ``"10m"``."""


class JobClientError(PeerdError):
    """The root of the errors of a `JobClient` and an `AsyncJobClient`."""


class MessageRefused(JobClientError):
    """The gateway has refused a message and changed nothing. `code` is from the table in docs/protocol.md."""

    def __init__(self, code: str, problem: str, cmd: str | None) -> None:
        self.code = code
        self.problem = problem
        self.cmd = cmd
        super().__init__(problem if cmd is None else f"{cmd}: {problem}")


class NoWork(MessageRefused, LookupError):
    """The queues have no job that could be taken."""


class JobNotHeld(MessageRefused, LookupError):
    """The connection does not hold this job: its time to run is over, or it was canceled, moved or finished."""


class GatewayUnreachable(JobClientError, ConnectionError):
    """No gateway accepts connections at an address."""

    def __init__(self, address: str, problem: str) -> None:
        self.address = address
        super().__init__(
            f"no gateway at {address}: {problem}; is its node running, and does [gateway.NAME] bind there?"
        )


class JobConnectionLost(JobClientError, ConnectionError):
    """The connection has ended. The jobs that it held are back in their queues; connect again to go on."""

    def __init__(self, address: str, problem: str) -> None:
        self.address = address
        super().__init__(f"the connection to the gateway at {address} has ended ({problem}); connect again")


class ReplyTimeout(JobClientError, TimeoutError):
    """The gateway did not reply in time. The connection is closed, because a later reply would be taken for another."""

    def __init__(self, address: str, cmd: str, seconds: float) -> None:
        self.address = address
        self.cmd = cmd
        super().__init__(f"the gateway at {address} did not reply to {cmd} within {format_duration(seconds)}")


class InvalidReply(JobClientError):
    """What was received is no reply of the JSON protocol: the program at that address is no gateway."""

    def __init__(self, address: str, problem: str) -> None:
        self.address = address
        super().__init__(f"the program at {address} does not speak peerd's JSON protocol: {problem}")


def describe(error: OSError) -> str:
    """The cause of a failed connection, in the words of the system.

    >>> describe(ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 11300)")), describe(TimeoutError())
    ('Connection refused', 'no answer')
    """
    if type(error).__module__ == "builtins" and error.errno:
        return os.strerror(error.errno)
    return str(error) or "no answer"


# ---------------------------------------------------------------- replies


_REFUSALS: Final = {ErrorCode.NO_WORK.value: NoWork, ErrorCode.NOT_HELD.value: JobNotHeld}


class AddedJob(msgspec.Struct, frozen=True):
    """The confirmation of an added job: its number, and whether it is new; it is not if its unique key was taken."""

    id: int
    created: bool


class TakenJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that the connection holds.

    Attributes:
        id: its number.
        value: the job: a JSON value; text or bytes if another program has put one that is not JSON.
        queue: where it was taken from.
        ttr: seconds until it goes back to its queue unless it is touched; None if it is held as long as the connection.
    """

    id: int
    value: Any
    queue: str
    ttr: int | None = None


class Reply(msgspec.Struct, frozen=True):
    """A reply; what it does not have is None."""

    id: int | str | None = None
    job_id: int | None = None
    created: bool | None = None
    queue: str | None = None
    ttr: int | None = None
    job: msgspec.Raw = NOTHING
    text: str | None = None
    base64: str | None = None
    error: str | None = None
    code: str | None = None
    cmd: str | None = None

    def check(self) -> Reply:
        """The reply itself; raises `MessageRefused`, or one of its kinds, if it is an error."""
        if self.error is not None:
            code = self.code or ErrorCode.INVALID.value
            raise _REFUSALS.get(code, MessageRefused)(code, self.error, self.cmd)
        return self

    def added(self) -> AddedJob:
        """The reply as one to add_job."""
        return AddedJob(self.check().job_id or 0, bool(self.created))

    def taken(self) -> TakenJob:
        """The reply as one to get_job."""
        return TakenJob(id=self.check().job_id or 0, value=self._value(), queue=self.queue or "", ttr=self.ttr)

    def _value(self) -> object:
        if self.text is not None:
            return self.text
        if self.base64 is not None:
            return base64.b64decode(self.base64)
        text = bytes(self.job)
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:  # a number beyond what it reads
            return json.loads(text)


_DECODER: Final = msgspec.json.Decoder(Reply)


class Exchange:
    r"""Numbers messages, and parses the stream of replies.

    Args:
        address: of the gateway, for errors.

    >>> from peerd.gateway.json.messages import GetJob
    >>> exchange = Exchange("here")
    >>> exchange.write(GetJob())
    (1, b'{"cmd":"get_job","id":1}\n')
    >>> exchange.read(b'{"id":1,"job_id":17,"queue":"default","jo')
    []
    >>> [reply.taken().value for reply in exchange.read(b'b":[1]}\n')]
    [[1]]
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._numbers = count(1)
        self._buffer = bytearray()

    def write(self, message: Message) -> tuple[int, bytes]:
        """Give a message the next id; return the id, and the bytes to send."""
        message.id = next(self._numbers)
        return message.id, msgspec.json.encode(message) + b"\n"

    def read(self, data: bytes) -> list[Reply]:
        """Add bytes that were received; return the replies that they complete. Raises InvalidReply."""
        start = len(self._buffer)
        self._buffer += data
        end = self._buffer.rfind(b"\n", start) + 1
        if end == 0:
            if len(self._buffer) > MAX_REPLY:
                raise InvalidReply(self._address, f"a line has more than {MAX_REPLY} bytes")
            return []
        lines = bytes(self._buffer[: end - 1]).split(b"\n")
        del self._buffer[:end]
        return [self._decode(line) for line in lines]

    def _decode(self, line: bytes) -> Reply:
        try:
            return _DECODER.decode(line)
        except msgspec.DecodeError as error:
            raise InvalidReply(self._address, f"{quoted(line)} is no reply") from error


# ---------------------------------------------------------------- messages


JobOrId = TakenJob | int | None


class JobOptions(TypedDict, total=False):
    """The options of add_job.

    Attributes:
        queue: its queue; ``default`` if it is not given.
        priority: an integer; the larger is taken first, and 10 is the default.
        delay: the job is not given out before; whole seconds, rounded up.
        ttr: it goes back to its queue after that time without a touch; without one, when its connection ends.
        unique: a key: while another job of the queue has it, no job is added.
        unique_for: how long it is taken: ``unfinished``, the default, ``forever``, or a duration.
        max_attempts: so many failures are its end; without it, none is.
        name: of the handler, if Python workers are to run it.
    """

    queue: str
    priority: int
    delay: Duration
    ttr: Duration | None
    unique: str | None
    unique_for: Duration
    max_attempts: int | None
    name: str


def add_job_message(job: object, options: JobOptions) -> AddJob:
    """Put a job.

    Raises:
        InvalidTask: the job is not JSON.
        ValueError: an option is none that a job can have.
    """
    given: dict[str, Any] = dict(options)
    for name in ("delay", "ttr"):
        if given.get(name) is not None:
            given[name] = _whole_seconds(given[name])
    if given.get("unique_for", "forever") not in ("unfinished", "forever"):
        given["unique_for"] = parse_duration(given["unique_for"])
    return AddJob(job=msgspec.Raw(_json_of("job", job)), **given)


def get_job_message(queues: tuple[str, ...], wait: Duration) -> GetJob:
    """Take the best job of these queues; of ``default`` where none is named."""
    return GetJob(queues=queues or None, wait=parse_duration(wait))


def notify_message(job: JobOrId, result: object) -> NotifyDone:
    """Report a job done; a result other than None is kept with it."""
    given = NOTHING if result is None else msgspec.Raw(_json_of("result", result))
    return NotifyDone(job_id=_id_of(job), result=given)


def touch_message(job: JobOrId, progress: float | None, note: str | None) -> TouchJob:
    """Renew the time limit of a job."""
    return TouchJob(job_id=_id_of(job), progress=progress, note=note)


def fail_message(job: JobOrId, reason: str, retry: Duration | None) -> FailJob:
    """End an attempt without success; ``retry`` is False or a duration."""
    after: Any = retry if retry is None or retry is False else parse_duration(retry)
    return FailJob(job_id=_id_of(job), reason=reason or None, retry=after)


def release_message(job: JobOrId, delay: Duration) -> ReleaseJob:
    """Give a job back."""
    return ReleaseJob(job_id=_id_of(job), delay=_whole_seconds(delay))


def _json_of(what: str, value: object) -> bytes:
    try:
        if contains_non_finite(value):
            raise InvalidTask(what, NON_FINITE_PROBLEM)
        return msgspec.json.encode(value)
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidTask(what, f"cannot be written as JSON: {error}") from error


def _id_of(job: JobOrId) -> int | None:
    return job.id if isinstance(job, TakenJob) else job


def _whole_seconds(duration: Duration) -> int:
    return math.ceil(parse_duration(duration))
