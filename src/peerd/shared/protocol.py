"""Messages between proxies and the agent: MessagePack after a length of four bytes, big-endian; and their errors."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import Any, Final

import msgspec

from peerd.domain.errors import PeerdError
from peerd.domain.quoting import quoted
from peerd.domain.units import format_duration

MAX_MESSAGE_BYTES: Final = 8 * 1024 * 1024
SOCKET_NAME: Final = "shared.sock"
"""Name of the agent's socket in the run directory."""
FOLLOW_TIMEOUT: Final = 60.0
"""Seconds that a subscription waits in the agent for its client to be shared."""
MAX_CALL_TIMEOUT: Final = 86_400.0  # seconds

_LENGTH: Final = struct.Struct(">I")
_CREDENTIALS: Final = struct.Struct("3i")


class SharedError(PeerdError):
    """The root of the errors of shared connections."""


class SharedCallFailed(SharedError):
    """The real client raised an exception; the name of its type and its text are carried over.

    Args:
        what: the client's class and the method or key.
        type_name: of the exception.
        text: of the exception.
    """

    def __init__(self, what: str, type_name: str, text: str) -> None:
        self.type_name = type_name
        self.text = text
        super().__init__(f"{what} failed in the agent: {type_name}: {text}" if text else f"{what}: {type_name}")


class SharedCallTimedOut(SharedError, TimeoutError):
    """No answer came in time. The call may have been carried out; the agent has been asked to cancel it."""

    def __init__(self, what: str, seconds: float, state: str) -> None:
        super().__init__(f"{what} was not answered within {format_duration(round(seconds, 3))}: {state}")


class AgentLost(SharedError, ConnectionError):
    """The agent ended before it answered. The call is not repeated, for it may have been carried out."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the agent ended before it answered {what}, which may have been carried out")


class NotShared(SharedError, LookupError):
    """The agent of this node shares no such class."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"the agent shares no {name}: call agent.share({name.rpartition('.')[2]}) in the function that "
            "[agent] setup names"
        )


class NotSerializable(SharedError, ValueError):
    """A value that cannot be carried from one process to another."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(
            f"{what} cannot be carried to another process: {problem}; give None, booleans, numbers, texts, bytes, "
            "times, lists, dicts, dataclasses or msgspec structs of them"
        )


class NoSuchSharedMethod(SharedError, AttributeError):
    """A name that is no public async method of a shared class."""

    def __init__(self, client: str, name: str, known: list[str]) -> None:
        super().__init__(
            f"{client} has no async method {quoted(name)} that another process may call; it has {', '.join(known)}"
        )


class WrongEventLoop(SharedError, RuntimeError):
    """A shared client was awaited on an event loop of the user's own."""

    def __init__(self) -> None:
        super().__init__(
            "a shared client belongs to the event loop of its process: await it there, or call it without await in a "
            "thread that has no event loop"
        )


class CallRequest(msgspec.Struct, frozen=True, tag="call"):
    """Call a method of a shared client."""

    id: int
    client: str
    method: str
    args: list[Any]
    kwargs: dict[str, Any]
    timeout: float


class CancelRequest(msgspec.Struct, frozen=True, tag="cancel"):
    """Cancel the call: its caller has stopped waiting."""

    id: int


class FollowRequest(msgspec.Struct, frozen=True, tag="follow"):
    """Send all values of a key, under this id, until it is unfollowed."""

    id: int
    client: str
    key: Any


class UnfollowRequest(msgspec.Struct, frozen=True, tag="unfollow"):
    """Send no more values."""

    id: int


class CallReply(msgspec.Struct, frozen=True, tag="returned"):
    """The result of a call."""

    id: int
    value: Any


class ErrorReply(msgspec.Struct, frozen=True, tag="failed"):
    """A call, or a subscription, failed: `why` is raised, timeout or not-shared."""

    id: int
    why: str
    type_name: str = ""
    text: str = ""


class ValueReply(msgspec.Struct, frozen=True, tag="value"):
    """A value of a followed key: the `number`th of the `generation`th connection to the source."""

    id: int
    value: Any
    number: int
    generation: int


SharedRequest = CallRequest | CancelRequest | FollowRequest | UnfollowRequest
SharedReply = CallReply | ErrorReply | ValueReply

_encoder: Final = msgspec.msgpack.Encoder()
_ordered_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")
request_decoder: Final = msgspec.msgpack.Decoder(SharedRequest)
reply_decoder: Final = msgspec.msgpack.Decoder(SharedReply)


class SharedProtocolError(SharedError):
    """The bytes received are no message; the connection cannot be used any further."""


def encode_message(message: SharedRequest | SharedReply, what: str) -> bytes:
    """A message with its length; arguments and errors as for `encode_value`."""
    body = encode_value(message, what)
    return _LENGTH.pack(len(body)) + body


def encode_value(value: Any, what: str) -> bytes:
    """A value as bytes.

    Args:
        value: to be encoded.
        what: names the value in the error.

    Raises:
        NotSerializable: it cannot be encoded, or is too large.
    """
    try:
        body = _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise NotSerializable(what, str(error)) from None
    if len(body) > MAX_MESSAGE_BYTES:
        raise NotSerializable(what, f"it has {len(body):,} bytes, and {MAX_MESSAGE_BYTES:,} are allowed")
    return body


def key_identity(key: Any) -> bytes:
    """Bytes that are the same for equal keys, in any order of their parts.

    >>> key_identity({"group": 1, "id": 2}) == key_identity({"id": 2, "group": 1})
    True

    Raises:
        NotSerializable: it cannot be a key.
    """
    encode_value(key, "the key")
    return _ordered_encoder.encode(key)


async def read_body(reader: asyncio.StreamReader) -> bytes | None:
    """The next message's body; None at the end of the stream.

    Raises:
        SharedProtocolError: it is longer than any message may be.
    """
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > MAX_MESSAGE_BYTES:
            raise SharedProtocolError(f"a message says it has {length:,} bytes, and {MAX_MESSAGE_BYTES:,} are allowed")
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def is_same_user(end: socket.socket) -> bool:
    """Whether the other end of a unix socket is a process of the same user, or of root."""
    _, uid, _ = _CREDENTIALS.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return uid in (os.geteuid(), 0)
