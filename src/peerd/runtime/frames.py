"""Frames: the protocol between master, children and clients of the control socket; and targets of messages.

A frame is a 4-byte big-endian length and that many bytes of UTF-8 JSON, one object. A frame has 1 MiB at the most, and
the data of a message 256 KiB, because the master relays it. Standard library only.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from peerd.domain.quoting import quoted

MAX_BODY_BYTES: Final = 1024 * 1024  # the largest body of a frame

_LENGTH: Final = struct.Struct(">I")


class FrameError(ValueError):
    """Bytes or a message that are no frame; a stream with such bytes cannot be used any further."""


class FrameTooLarge(FrameError):
    """The message has more bytes than a frame carries."""

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__(f"the message has {size} bytes; a frame carries at most {MAX_BODY_BYTES}")


def encode(message: Mapping[str, object], *, escape_surrogates: bool = False) -> bytes:
    r"""The frame of a message.

    Raises FrameError for a message that is not JSON, or too large (`FrameTooLarge`). Halves of surrogate pairs, as in a
    file name that is not UTF-8, are refused or escaped.

    >>> encode({"type": "ready"})
    b'\x00\x00\x00\x10{"type":"ready"}'
    """
    try:
        try:
            body = json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except UnicodeEncodeError:
            if not escape_surrogates:
                raise
            body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise FrameError(f"the message cannot be written as JSON: {error}") from error
    if len(body) > MAX_BODY_BYTES:
        raise FrameTooLarge(len(body))
    return _LENGTH.pack(len(body)) + body


class FrameDecoder:
    """Decodes a stream of frames that arrives in pieces of any size.

    >>> decoder = FrameDecoder()
    >>> decoder.feed(encode({"n": 1})[:6])
    []
    >>> decoder.feed(encode({"n": 1})[6:])
    [{'n': 1}]
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[dict[str, object]]:
        """Add bytes of the stream; return the messages that they complete. Raises FrameError."""
        self._buffer += data
        messages = []
        while len(self._buffer) >= _LENGTH.size:
            end = _LENGTH.size + _body_length(self._buffer)
            if len(self._buffer) < end:
                break
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            messages.append(_message(body))
        return messages


def receive(end: socket.socket) -> dict[str, object] | None:
    """Wait for one frame on a blocking socket, without reading beyond it; None at the end of the stream.

    Raises FrameError for other bytes, and OSError if the socket failed, or timed out.
    """
    head = _receive_exactly(end, _LENGTH.size)
    body = _receive_exactly(end, _body_length(head)) if head else b""
    return _message(body) if body else None


def _receive_exactly(end: socket.socket, size: int) -> bytes:
    """`size` bytes, or none when the stream ends before."""
    data = bytearray()
    while len(data) < size:
        part = end.recv(size - len(data))
        if not part:
            return b""
        data += part
    return bytes(data)


def _body_length(head: bytes | bytearray) -> int:
    (length,) = _LENGTH.unpack_from(head)
    if length > MAX_BODY_BYTES:
        raise FrameError(f"a frame announces {length} bytes, and {MAX_BODY_BYTES} are allowed: this is no frame")
    return int(length)


def _message(body: bytes) -> dict[str, object]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a frame holds no JSON: {error}") from error
    if not isinstance(message, dict):
        raise FrameError(f"a frame holds {type(message).__name__} instead of an object")
    return message


# ---------------------------------------------------------------- targets and sizes of messages


MAX_MESSAGE_BYTES: Final = 256 * 1024
"""Bytes of a message, or of a reply, as JSON. Messages carry decisions; larger data belongs elsewhere."""
MAX_ACTION_LENGTH: Final = 200  # characters of the name of an action
MAX_IN_FLIGHT: Final = 1000
"""Messages of one process whose delivery is not known yet."""
MAX_IN_FLIGHT_BYTES: Final = 4 * 1024 * 1024
"""Bytes of these messages."""
DEFAULT_REPLY_TIMEOUT: Final = 10.0
"""Seconds that a request waits for its reply."""
MAX_REPLY_TIMEOUT: Final = 86_400.0
"""The longest such time that can be given, seconds."""
WEB_ROLE: Final = "web"
WORKER_ROLES: Final = ("worker", WEB_ROLE)
"""The roles that are workers to messages: task workers, periodic workers and web processes."""
GATEWAY_ROLE: Final = "gateway"
"""The role of processes that serve queue clients. They get rings, and no messages of users."""
ADDRESSED_ROLES: Final = (*WORKER_ROLES, GATEWAY_ROLE, "agent")
"""Roles of processes that take messages which are addressed to them by their pid."""

_ROLES: Final = ("all", "workers", "agent", "random")


class InvalidTarget(ValueError):
    """A value that is no target of messages."""

    def __init__(self, given: object) -> None:
        super().__init__(f"a message is for {', '.join(_ROLES)}, or a process id; {quoted(given)} is none of these")


@dataclass(frozen=True, slots=True)
class Peer:
    """A process of this node, as a sender or recipient of messages.

    `role` is `agent`, `worker`, `web` or `gateway`; `control` for a message that was sent with the CLI.
    """

    pid: int
    slot: str
    kind: str
    role: str
    generation: int = 1

    def __str__(self) -> str:
        return f"{self.slot} (process {self.pid})"

    def to_json(self) -> dict[str, Any]:
        """The content of a frame."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Target:
    """The recipients of a message.

    >>> str(Target.workers("video")), str(Target.of("agent")), str(Target.of(17))
    ('all workers of video', 'the agent', 'process 17')
    """

    role: str
    kind: str | None = None
    pid: int | None = None

    @classmethod
    def everyone(cls) -> Target:
        """All workers and the agent, the sender included."""
        return cls("all")

    @classmethod
    def workers(cls, kind: str | None = None) -> Target:
        """All workers, or those of one kind, the sender included."""
        return cls("workers", kind=kind)

    @classmethod
    def random(cls, kind: str | None = None) -> Target:
        """A worker, or one of a kind, at random."""
        return cls("random", kind=kind)

    @classmethod
    def agent(cls) -> Target:
        """The agent."""
        return cls("agent")

    @classmethod
    def process(cls, pid: int) -> Target:
        """The process with this process id."""
        return cls("process", pid=pid)

    @classmethod
    def of(cls, given: Target | str | int) -> Target:
        """A target from itself, or from its short form: `"agent"`, `"random"`, or a process id.

        Raises:
            InvalidTarget: it is none of these.
        """
        if isinstance(given, Target):
            return given
        return cls.parse({"role": given} if isinstance(given, str) else {"pid": given})

    @classmethod
    def parse(cls, data: object) -> Target:
        """Read a target from a frame. Raises InvalidTarget."""
        if not isinstance(data, dict):
            raise InvalidTarget(data)
        pid, role, kind = data.get("pid"), data.get("role"), data.get("kind")
        if role is None and isinstance(pid, int) and not isinstance(pid, bool):
            return cls.process(pid)
        is_kind = kind is None or (isinstance(kind, str) and len(kind) <= 200 and role in ("workers", "random"))
        if role not in _ROLES or pid is not None or not is_kind:
            raise InvalidTarget(data)
        return cls(role, kind=kind)

    def to_json(self) -> dict[str, object]:
        """The content of a frame."""
        if self.role == "process":
            return {"pid": self.pid}
        return {"role": self.role} | ({"kind": self.kind} if self.role in ("workers", "random") else {})

    @property
    def is_one(self) -> bool:
        """Whether it is exactly one process, so that a request can be sent to it."""
        return self.role in ("agent", "random", "process")

    def __str__(self) -> str:
        texts = {
            "all": "all workers and the agent",
            "workers": "all workers",
            "random": "one worker",
            "agent": "the agent",
            "process": f"process {self.pid}",
        }
        return f"{texts[self.role]} of {self.kind}" if self.kind else texts[self.role]
