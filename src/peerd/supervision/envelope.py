"""A message on its way through the master: parsed from a child's frame and checked, and the processes that get it.

Children are not trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Protocol

from peerd.domain.quoting import quoted
from peerd.runtime import frames
from peerd.runtime.frames import FrameError, InvalidTarget, Peer, Target, encode
from peerd.supervision.child_process import ChildProcess
from peerd.supervision.process_table import ProcessTable
from peerd.supervision.slot import SlotState

# bytes of a message and of what a frame holds besides: its sender and its number
_MAX_FRAME_BYTES: Final = frames.MAX_MESSAGE_BYTES + 2048

_MAX_ERROR_LENGTH: Final = 10_000

SendToSender = Callable[[Mapping[str, object]], object]
# states of a slot that has a process or will have one
_STATES_WITH_PROCESS: Final = (SlotState.STARTING, SlotState.BACKOFF, SlotState.RUNNING)


class MalformedMessage(ValueError):
    """A frame is not a message; the text says why."""


@dataclass(slots=True, eq=False)
class Envelope:
    """A message and the way back to its sender.

    `number` is the master's, `sender_message_id` the sender's own; `frame` is what the recipients get. A request ends
    at `expires_at`; a message that waits for a recipient is given up at `wait_until`.
    """

    number: int
    sender: Hashable
    sender_message_id: int
    target: Target
    is_request: bool
    frame: bytes
    notify_sender: SendToSender
    expires_at: float = inf
    wait_until: float = inf
    receiver: Hashable = None
    receiver_name: str = ""

    @property
    def due_at(self) -> float:
        """When the router must act on it if nothing else happens."""
        return min(self.expires_at, self.wait_until) if self.receiver is None else self.expires_at

    def report_delivery(self, count: int, error: str | None = None) -> None:
        if self.is_request:
            self.report_failure(error or "", "undeliverable")
        else:
            self.notify_sender({"type": "delivery", "id": self.sender_message_id, "delivered": count, "error": error})

    def report_failure(self, error: str, reason: str) -> None:
        self.notify_sender({"type": "reply", "id": self.sender_message_id, "error": error, "reason": reason})

    def report_reply(self, reply: Mapping[str, Any]) -> None:
        if "error" in reply:
            error = reply["error"] if isinstance(reply["error"], str) else quoted(reply["error"])
            self.report_failure(error[:_MAX_ERROR_LENGTH].encode(errors="replace").decode(), "handler")
            return
        frame = {"type": "reply", "id": self.sender_message_id, "data": reply.get("data")}
        try:
            size = len(encode(frame))
        except FrameError as error:
            self.report_failure(str(error), "handler")
            return
        if size > _MAX_FRAME_BYTES:
            self.report_failure(f"its answer has {size} bytes, and {frames.MAX_MESSAGE_BYTES} are allowed", "handler")
        else:
            self.notify_sender(frame)


def parse_envelope(
    message: Mapping[str, Any], number: int, origin: Peer, sender: Hashable, notify_sender: SendToSender, now: float
) -> Envelope:
    """Parse the frame of a message; `origin` is its sender as the recipients see it, `sender` the same as a key.

    Raises:
        MalformedMessage: a field is missing or invalid.
    """
    sender_message_id = parse_number(message, "id")
    if sender_message_id is None:
        raise MalformedMessage("its `id` must be a number")
    is_request = message.get("request", False)
    if not isinstance(is_request, bool):
        raise MalformedMessage("its `request` must be true or false")
    action = message.get("action")
    if not isinstance(action, str) or not 0 < len(action) <= frames.MAX_ACTION_LENGTH:
        raise MalformedMessage(f"its `action` must be a text of 1 to {frames.MAX_ACTION_LENGTH} characters")
    content = {"action": action, "data": message.get("data"), "from": origin.to_json()}
    try:
        target = Target.parse(message.get("to"))
        frame = encode({"type": "message", **content, "id": number, "request": is_request})
    except (InvalidTarget, FrameError) as error:
        raise MalformedMessage(str(error)) from error
    if is_request and not target.is_one:
        raise MalformedMessage(f"a request is for one process, not for {target}")
    if len(frame) > _MAX_FRAME_BYTES:
        raise MalformedMessage(f"it has {len(frame)} bytes, and {frames.MAX_MESSAGE_BYTES} are allowed")
    expires_at = now + _parse_timeout(message) if is_request else inf
    return Envelope(number, sender, sender_message_id, target, is_request, frame, notify_sender, expires_at)


def parse_number(message: Mapping[str, Any], key: str) -> int | None:
    """Return a field of a frame if it is an integer of at most 64 bits."""
    number = message.get(key)
    return number if isinstance(number, int) and not isinstance(number, bool) and abs(number) < 2**63 else None


def rejection_of(message: Mapping[str, Any], error: str) -> dict[str, object]:
    """Return the answer to a malformed message."""
    if message.get("request"):
        return {"type": "reply", "id": parse_number(message, "id"), "error": error, "reason": "undeliverable"}
    return {"type": "delivery", "id": parse_number(message, "id"), "delivered": 0, "error": error}


def _parse_timeout(message: Mapping[str, Any]) -> float:
    timeout = message.get("timeout")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= frames.MAX_REPLY_TIMEOUT:
        raise MalformedMessage(f"its `timeout` must be seconds, more than 0 and at most {frames.MAX_REPLY_TIMEOUT:.0f}")
    return float(timeout)


# ---------------------------------------------------------------- recipients


class RecipientLink(Protocol):
    """The connection to a process: a `FrameChannel`, or the connection of an inline node."""

    @property
    def is_open(self) -> bool: ...

    def send(self, message: Mapping[str, object]) -> bool: ...

    def send_frame(self, frame: bytes, max_unsent: int = ...) -> bool: ...


@dataclass(frozen=True, slots=True)
class Recipient:
    """A living process, identified by `process`. A leaving one (tainted, recycled, draining) finishes its work."""

    process: Hashable
    peer: Peer
    link: RecipientLink
    ready: bool = True
    leaving: bool = False

    @property
    def is_available(self) -> bool:
        """Whether it gets broadcasts and can be chosen at random."""
        return self.ready and not self.leaving

    @property
    def is_listed(self) -> bool:
        """Whether other processes know of it: a gateway process that drains is still rung for its clients."""
        return self.ready and (not self.leaving or self.peer.role == frames.GATEWAY_ROLE)


@dataclass(frozen=True, slots=True)
class ProcessDirectory:
    """The processes of a node, the (kind, role) of slots that get a process or boot one, and those of all slots."""

    present: tuple[Recipient, ...] = ()
    expected: frozenset[tuple[str, str]] = frozenset()
    known: frozenset[tuple[str, str]] = frozenset()


class NoRecipient(LookupError):
    """A message has no recipient, and none is expected; the text says why."""


def build_directory(table: ProcessTable) -> ProcessDirectory:
    filled = [entry.slot.kind for entry in table.entries if entry.wanted and entry.slot.state in _STATES_WITH_PROCESS]
    return ProcessDirectory(
        present=tuple(map(as_recipient, table.processes())),
        expected=frozenset((kind.name, kind.role) for kind in filled),
        known=frozenset((kind.name, kind.role) for kind in table.kinds.values()),
    )


def as_recipient(process: ChildProcess) -> Recipient:
    peer = Peer(process.pid, process.slot, process.kind.name, process.kind.role, process.generation)
    leaving = process.asked_to_stop or bool(process.retired)
    return Recipient(process, peer, process.link, process.ready, leaving)


def find_recipients(target: Target, directory: ProcessDirectory) -> tuple[Recipient, ...] | None:
    """Return the recipients of a message, all candidates for a random one; None if one is only expected.

    Raises:
        NoRecipient: there is none, and none is expected.
    """
    if target.role == "process":
        return _find_by_pid(target, directory)
    kinds = sorted({kind for kind, role in directory.known if role in frames.WORKER_ROLES})
    if target.kind is not None and target.kind not in kinds:
        raise NoRecipient(f"this node has no workers of the kind {target.kind!r}; it has {', '.join(kinds) or 'none'}")
    found = [one for one in directory.present if one.is_available and _matches(target, one.peer.kind, one.peer.role)]
    if found:
        return tuple(found)
    if any(_matches(target, kind, role) for kind, role in directory.expected):
        return None
    if target.role != "agent":
        raise NoRecipient("no matching process is running")
    has_agent = any(role == "agent" for _, role in directory.known)
    raise NoRecipient("the agent is stopping" if has_agent else "this node has no agent")


def _find_by_pid(target: Target, directory: ProcessDirectory) -> tuple[Recipient, ...] | None:
    found = next((one for one in directory.present if one.peer.pid == target.pid), None)
    if found is None:
        raise NoRecipient(f"this node has no process {target.pid}")
    if found.peer.role not in frames.ADDRESSED_ROLES:
        raise NoRecipient(f"process {target.pid} is the {found.peer.role}, which takes no messages")
    if not found.ready and found.leaving:
        raise NoRecipient(f"process {target.pid} is stopping")
    return (found,) if found.ready else None


def _matches(target: Target, kind: str, role: str) -> bool:
    if role == "agent":
        return target.role in {"agent", "all"}
    return role in frames.WORKER_ROLES and target.role != "agent" and target.kind in (None, kind)
