"""A message on its way through the master: read from a frame of a child, and checked as what comes from outside."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from peerd.domain.quoting import quoted
from peerd.runtime.messages.addressing import LARGEST, LONGEST_ACTION, LONGEST_TIMEOUT, BadTarget, Peer, Target
from peerd.runtime.messages.frames import FrameError, encode

_ENVELOPE: Final = 2048
"""Bytes that a frame may have beside the message: who has sent it, and its number."""

_LONGEST_ERROR: Final = 10_000

Tell = Callable[[Mapping[str, object]], object]


class BadMessage(ValueError):
    """A frame is no message; the text says why."""


@dataclass(slots=True, eq=False)
class Letter:
    """A message, and how its sender learns what became of it.

    `number` is the master's, `called` the sender's own; `frame` is what the receivers get. `forget_at` is when nobody
    waits for its reply any more, `wait_until` when it has waited long enough for somebody to take it.
    """

    number: int
    sender: Hashable
    called: int
    target: Target
    is_request: bool
    frame: bytes
    tell: Tell
    forget_at: float = inf
    wait_until: float = inf
    receiver: Hashable = None
    receiver_name: str = ""

    @property
    def due_at(self) -> float:
        """When something must be done about it if nothing happens."""
        return min(self.forget_at, self.wait_until) if self.receiver is None else self.forget_at

    def delivered(self, count: int, error: str | None = None) -> None:
        """Tell its sender."""
        if self.is_request:
            self.failed(error or "", "undeliverable")
        else:
            self.tell({"type": "delivery", "id": self.called, "delivered": count, "error": error})

    def failed(self, error: str, reason: str) -> None:
        """Tell the sender of a request that there is no reply."""
        self.tell({"type": "reply", "id": self.called, "error": error, "reason": reason})

    def answered(self, reply: Mapping[str, Any]) -> None:
        """Hand the reply to the sender of a request."""
        if "error" in reply:
            self.failed(_writable(reply["error"]), "handler")
            return
        answer = {"type": "reply", "id": self.called, "data": reply.get("data")}
        try:
            size = len(encode(answer))
        except FrameError as error:
            self.failed(str(error), "handler")
            return
        if size > LARGEST + _ENVELOPE:
            self.failed(f"its answer has {size} bytes, and {LARGEST} are allowed", "handler")
        else:
            self.tell(answer)


def read(message: Mapping[str, Any], number: int, origin: Peer, sender: Hashable, tell: Tell, now: float) -> Letter:
    """Read a message from its frame.

    Args:
        message: the frame.
        number: by which the master knows it.
        origin: who has sent it, as its receivers are told.
        sender: the same, as a key.
        tell: the way back to the sender.
        now: the time, seconds.

    Raises:
        BadMessage: it is none.
    """
    called = number_of(message, "id")
    if called is None:
        raise BadMessage("its `id` must be a number")
    is_request = message.get("request", False)
    if not isinstance(is_request, bool):
        raise BadMessage("its `request` must be true or false")
    action = message.get("action")
    if not isinstance(action, str) or not 0 < len(action) <= LONGEST_ACTION:
        raise BadMessage(f"its `action` must be a text of 1 to {LONGEST_ACTION} characters")
    try:
        target = Target.parse(message.get("to"))
    except BadTarget as error:
        raise BadMessage(str(error)) from error
    if is_request and not target.is_one:
        raise BadMessage(f"a request is for one process, not for {target}")
    content = {"action": action, "data": message.get("data"), "from": origin.to_json()}
    return Letter(
        number=number,
        sender=sender,
        called=called,
        target=target,
        is_request=is_request,
        frame=_frame({"type": "message", **content, "id": number, "request": is_request}),
        tell=tell,
        forget_at=now + _timeout(message) if is_request else inf,
    )


def number_of(message: Mapping[str, Any], key: str) -> int | None:
    """Return a number of a frame, if it is one, and of a sensible size."""
    number = message.get(key)
    return number if isinstance(number, int) and not isinstance(number, bool) and abs(number) < 2**63 else None


def refusal(message: Mapping[str, Any], error: str) -> dict[str, object]:
    """Return what the sender of a frame is told that is no message."""
    if message.get("request"):
        return {"type": "reply", "id": number_of(message, "id"), "error": error, "reason": "undeliverable"}
    return {"type": "delivery", "id": number_of(message, "id"), "delivered": 0, "error": error}


def _writable(error: object) -> str:
    text = error if isinstance(error, str) else quoted(error)
    return text[:_LONGEST_ERROR].encode(errors="replace").decode()


def _frame(message: Mapping[str, object]) -> bytes:
    try:
        frame = encode(message)
    except FrameError as error:
        raise BadMessage(str(error)) from error
    if len(frame) > LARGEST + _ENVELOPE:
        raise BadMessage(f"it has {len(frame)} bytes, and {LARGEST} are allowed")
    return frame


def _timeout(message: Mapping[str, Any]) -> float:
    timeout = message.get("timeout")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= LONGEST_TIMEOUT:
        raise BadMessage(f"its `timeout` must be seconds, more than 0 and at most {LONGEST_TIMEOUT:.0f}")
    return float(timeout)
