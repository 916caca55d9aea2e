"""A message on its way through the master: read from a frame of a child, and checked as what comes from outside."""

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

_FRAME_OVERHEAD: Final = 2048
"""Bytes that a frame may have beside the message: who has sent it, and its number."""

_MAX_ERROR_LENGTH: Final = 10_000

SendToSender = Callable[[Mapping[str, object]], object]


class MalformedMessage(ValueError):
    """A frame is no message; the text says why."""


@dataclass(slots=True, eq=False)
class Envelope:
    """A message, and how its sender learns what became of it.

    `number` is the master's, `sender_message_id` the sender's own; `frame` is what the receivers get. `expires_at` is
    when nobody waits for its reply any more, `wait_until` when it has waited long enough for somebody to take it.
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
        """When something must be done about it if nothing happens."""
        return min(self.expires_at, self.wait_until) if self.receiver is None else self.expires_at

    def report_delivery(self, count: int, error: str | None = None) -> None:
        """Tell its sender."""
        if self.is_request:
            self.report_failure(error or "", "undeliverable")
        else:
            self.notify_sender({"type": "delivery", "id": self.sender_message_id, "delivered": count, "error": error})

    def report_failure(self, error: str, reason: str) -> None:
        """Tell the sender of a request that there is no reply."""
        self.notify_sender({"type": "reply", "id": self.sender_message_id, "error": error, "reason": reason})

    def report_reply(self, reply: Mapping[str, Any]) -> None:
        """Hand the reply to the sender of a request."""
        if "error" in reply:
            self.report_failure(_to_error_text(reply["error"]), "handler")
            return
        frame_of_reply = {"type": "reply", "id": self.sender_message_id, "data": reply.get("data")}
        try:
            size = len(encode(frame_of_reply))
        except FrameError as error:
            self.report_failure(str(error), "handler")
            return
        if size > MAX_MESSAGE_BYTES + _FRAME_OVERHEAD:
            self.report_failure(f"its answer has {size} bytes, and {MAX_MESSAGE_BYTES} are allowed", "handler")
        else:
            self.notify_sender(frame_of_reply)


def parse_envelope(
    message: Mapping[str, Any], number: int, origin: Peer, sender: Hashable, notify_sender: SendToSender, now: float
) -> Envelope:
    """Read a message from its frame.

    Args:
        message: the frame.
        number: by which the master knows it.
        origin: who has sent it, as its receivers are told.
        sender: the same, as a key.
        notify_sender: the way back to the sender.
        now: the time, seconds.

    Raises:
        MalformedMessage: it is none.
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
    try:
        target = Target.parse(message.get("to"))
    except InvalidTarget as error:
        raise MalformedMessage(str(error)) from error
    if is_request and not target.is_one:
        raise MalformedMessage(f"a request is for one process, not for {target}")
    content = {"action": action, "data": message.get("data"), "from": origin.to_json()}
    return Envelope(
        number=number,
        sender=sender,
        sender_message_id=sender_message_id,
        target=target,
        is_request=is_request,
        frame=_encode_frame({"type": "message", **content, "id": number, "request": is_request}),
        notify_sender=notify_sender,
        expires_at=now + _parse_timeout(message) if is_request else inf,
    )


def parse_number(message: Mapping[str, Any], key: str) -> int | None:
    """Return a number of a frame, if it is one, and of a sensible size."""
    number = message.get(key)
    return number if isinstance(number, int) and not isinstance(number, bool) and abs(number) < 2**63 else None


def rejection_of(message: Mapping[str, Any], error: str) -> dict[str, object]:
    """Return what the sender of a frame is told that is no message."""
    if message.get("request"):
        return {"type": "reply", "id": parse_number(message, "id"), "error": error, "reason": "undeliverable"}
    return {"type": "delivery", "id": parse_number(message, "id"), "delivered": 0, "error": error}


def _to_error_text(error: object) -> str:
    text = error if isinstance(error, str) else quoted(error)
    return text[:_MAX_ERROR_LENGTH].encode(errors="replace").decode()


def _encode_frame(message: Mapping[str, object]) -> bytes:
    try:
        frame = encode(message)
    except FrameError as error:
        raise MalformedMessage(str(error)) from error
    if len(frame) > MAX_MESSAGE_BYTES + _FRAME_OVERHEAD:
        raise MalformedMessage(f"it has {len(frame)} bytes, and {MAX_MESSAGE_BYTES} are allowed")
    return frame


def _parse_timeout(message: Mapping[str, Any]) -> float:
    timeout = message.get("timeout")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= MAX_REPLY_TIMEOUT:
        raise MalformedMessage(f"its `timeout` must be seconds, more than 0 and at most {MAX_REPLY_TIMEOUT:.0f}")
    return float(timeout)
