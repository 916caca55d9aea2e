"""A message on its way through the master: parsed from a child's frame and validated, as children are not trusted."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from peerd.domain.quoting import quoted
from peerd.runtime.messages.addressing import (
    MAX_ACTION_LENGTH,
    MAX_MESSAGE_BYTES,
    MAX_REPLY_TIMEOUT,
    InvalidTarget,
    Peer,
    Target,
)
from peerd.runtime.messages.frames import FrameError, encode

_MAX_FRAME_BYTES: Final = MAX_MESSAGE_BYTES + 2048
"""Bytes of a message and of what a frame holds besides: its sender and its number."""

_MAX_ERROR_LENGTH: Final = 10_000

SendToSender = Callable[[Mapping[str, object]], object]


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
            self.report_failure(f"its answer has {size} bytes, and {MAX_MESSAGE_BYTES} are allowed", "handler")
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
    if not isinstance(action, str) or not 0 < len(action) <= MAX_ACTION_LENGTH:
        raise MalformedMessage(f"its `action` must be a text of 1 to {MAX_ACTION_LENGTH} characters")
    content = {"action": action, "data": message.get("data"), "from": origin.to_json()}
    try:
        target = Target.parse(message.get("to"))
        frame = encode({"type": "message", **content, "id": number, "request": is_request})
    except (InvalidTarget, FrameError) as error:
        raise MalformedMessage(str(error)) from error
    if is_request and not target.is_one:
        raise MalformedMessage(f"a request is for one process, not for {target}")
    if len(frame) > _MAX_FRAME_BYTES:
        raise MalformedMessage(f"it has {len(frame)} bytes, and {MAX_MESSAGE_BYTES} are allowed")
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
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= MAX_REPLY_TIMEOUT:
        raise MalformedMessage(f"its `timeout` must be seconds, more than 0 and at most {MAX_REPLY_TIMEOUT:.0f}")
    return float(timeout)
