"""Messages out, replies in: the client's side of the JSON protocol, without input or output."""

from __future__ import annotations

import base64
import json
from itertools import count
from typing import Any, Final

import msgspec

from peerd.domain.quoting import quoted
from peerd.gateway.client.errors import InvalidReply, JobNotHeld, MessageRefused, NoWork
from peerd.gateway.protocols.json.messages import NOTHING, ErrorCode, Message

MAX_REPLY: Final = 256 * 1024 * 1024
"""Bytes; a longer line is not a reply."""

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
    """One reply; what it does not have is None."""

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

    >>> from peerd.gateway.protocols.json.messages import GetJob
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
