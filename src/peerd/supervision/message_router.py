"""Routes messages between the processes of a node, and sends every process the list of processes.

A message from a worker to the agent: `Messenger.send` (`runtime.messenger`) writes a frame to the link with
the master; the master's loop passes it to `MessageRouter.route`, which finds the recipients and writes it to their
links; `Inbox` (`runtime.inbox`) calls their handlers and acknowledges.

Messages sent before the node is ready wait until it is, and those to a process that is being replaced wait for its
replacement. Waiting and unacknowledged messages are limited for each sender, so a flood costs the master no memory and
other senders nothing; its sender gets an error.

Recipients are those of the last `advance`, which the master calls in each round: messages that have waited are thus
always delivered before later ones.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import count
from math import inf
from typing import Any, Final

from peerd.domain.quoting import quoted
from peerd.runtime.frames import MAX_IN_FLIGHT, MAX_IN_FLIGHT_BYTES, Peer, encode
from peerd.supervision.envelope import (
    Envelope,
    MalformedMessage,
    NoRecipient,
    ProcessDirectory,
    Recipient,
    SendToSender,
    find_recipients,
    parse_envelope,
    parse_number,
    rejection_of,
)
from peerd.supervision.event_loop import MAX_UNSENT_BYTES

WAIT_TIMEOUT: Final = 30.0
"""Seconds that a message waits for an expected process."""

MAX_QUEUED_BYTES: Final = MAX_UNSENT_BYTES * 3 // 4
"""Unsent bytes of a link above which messages are refused; the rest is for the master's own frames."""

EXPIRY_MARGIN: Final = 1.0
"""Seconds that a request is kept after its timeout: its sender's own timer comes first."""

MAX_HELD_BYTES: Final = 2 * MAX_IN_FLIGHT_BYTES
"""Bytes of one sender's messages that the master keeps; more than a messenger sends without an answer."""

_TOO_MANY_HELD: Final = f"{MAX_IN_FLIGHT} messages of this sender wait already, or {MAX_HELD_BYTES} bytes of them"

CONTROL_SENDER: Final = "control"
"""The sender of messages that come over the control socket."""


class Quota:
    """The number and bytes of messages in use by each key, with a maximum of both."""

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self.used: dict[Hashable, tuple[int, int]] = {}

    def has_room(self, key: Hashable, size: int) -> bool:
        count, used = self.used.get(key, (0, 0))
        return count < self._max_messages and used + size <= self._max_bytes

    def add(self, key: Hashable, size: int) -> None:
        count, used = self.used.get(key, (0, 0))
        self.used[key] = (count + 1, used + size)

    def subtract(self, key: Hashable, size: int) -> None:
        count, used = self.used.pop(key)
        if count > 1:
            self.used[key] = (count - 1, used - size)


class FlowControl:
    """The messages that each receiver has not acknowledged yet, limited for each sender.

    >>> flow_control = FlowControl(max_messages=1)
    >>> flow_control.record_sent("video-1", sender="agent", size=10)
    >>> [flow_control.has_room("video-1", sender=sender, size=10) for sender in ("agent", "web-1")]
    [False, True]
    >>> flow_control.acknowledge("video-1", 1)
    >>> flow_control.has_room("video-1", sender="agent", size=10)
    True
    """

    def __init__(self, max_messages: int = MAX_IN_FLIGHT, max_bytes: int = MAX_IN_FLIGHT_BYTES) -> None:
        self._quota = Quota(max_messages, max_bytes)
        self._inboxes: dict[Hashable, deque[tuple[Hashable, int]]] = {}

    def has_room(self, receiver: Hashable, sender: Hashable, size: int) -> bool:
        return self._quota.has_room((receiver, sender), size)

    def record_sent(self, receiver: Hashable, sender: Hashable, size: int) -> None:
        self._inboxes.setdefault(receiver, deque()).append((sender, size))
        self._quota.add((receiver, sender), size)

    def acknowledge(self, receiver: Hashable, count: int) -> None:
        """Count the receiver's oldest messages no more."""
        inbox = self._inboxes.get(receiver, deque())
        for _ in range(min(max(count, 0), len(inbox))):
            sender, size = inbox.popleft()
            self._quota.subtract((receiver, sender), size)

    def remove(self, receiver: Hashable) -> None:
        for sender, size in self._inboxes.pop(receiver, ()):
            self._quota.subtract((receiver, sender), size)


class MessageRouter:
    """Routes messages. `now` is seconds of a monotonic clock."""

    def __init__(
        self,
        look_up: Callable[[], ProcessDirectory],
        choose: Callable[[Sequence[Recipient]], Recipient] = random.choice,
    ) -> None:
        self._look_up = look_up
        self._choose = choose
        self._directory = ProcessDirectory()
        self._open = False
        self._closed = False
        self._numbers = count(1)
        self._waiting: list[Envelope] = []
        self._awaiting_reply: dict[int, Envelope] = {}
        self._held = Quota(MAX_IN_FLIGHT, MAX_HELD_BYTES)
        self._flow_control = FlowControl()
        self._listed: tuple[Peer, ...] = ()
        # the list that each process got last: the same object as `_listed`, or an older one
        self._announced: dict[Hashable, tuple[Peer, ...]] = {}
        self.due_at = inf
        """When `advance` must be called if nothing else happens."""

    def open(self, now: float) -> None:
        """Deliver what waits: the node is ready."""
        self._open = True
        self._read_directory()
        self._retry_waiting(now)

    def close(self) -> None:
        """Expect no more processes: the node is stopping. Messages to present ones are still delivered."""
        self._closed = True
        waiting, self._waiting = self._waiting, []
        for envelope in waiting:
            self._release(envelope)
            envelope.report_delivery(0, "the node is stopping")

    def advance(self, now: float) -> None:
        """Read the directory, and act on its changes and on timeouts. Idempotent."""
        if changed := self._read_directory():
            self._drop_dead_processes()
        self._broadcast_processes()
        if changed or now >= self.due_at:
            self._retry_waiting(now)
            self._expire_requests(now)
            envelopes = [*self._waiting, *self._awaiting_reply.values()]
            self.due_at = min((envelope.due_at + EXPIRY_MARGIN for envelope in envelopes), default=inf)

    # ---------------------------------------------------------------- frames of processes

    def route(self, sender: Recipient, message: Mapping[str, Any], now: float) -> None:
        """Deliver a process's message, or keep it until its recipient is there."""

        def notify_sender(frame: Mapping[str, object]) -> None:
            sender.link.send_frame(encode(frame), MAX_QUEUED_BYTES)

        self._accept(message, sender.peer, sender.process, notify_sender, now)

    def route_reply(self, sender: Recipient, message: Mapping[str, Any]) -> None:
        """Send a reply to the process that made the request; drop one that is late or was not requested."""
        number = parse_number(message, "id")
        envelope = self._awaiting_reply.get(number) if number is not None else None
        if envelope is not None and envelope.receiver is sender.process:
            self._remove_request(envelope)
            envelope.report_reply(message)

    def acknowledge(self, receiver: Recipient, message: Mapping[str, Any]) -> None:
        """Record how many messages a process has taken from its inbox."""
        number = parse_number(message, "count")
        if number is not None:
            self._flow_control.acknowledge(receiver.process, number)

    def call_agent(self, action: object, data: object, timeout: object, answer: SendToSender, now: float) -> None:
        """Send the agent a request of a control socket's client; call `answer` once, with its `data` or an `error`."""

        def notify_sender(frame: Mapping[str, object]) -> None:
            answer({"data": frame["data"]} if "data" in frame else {"error": f"{quoted(action)}: {frame['error']}"})

        message = {"id": 0, "to": {"role": "agent"}, "action": action, "data": data, "request": True}
        origin = Peer(os.getpid(), CONTROL_SENDER, CONTROL_SENDER, CONTROL_SENDER)
        self._accept(message | {"timeout": timeout}, origin, CONTROL_SENDER, notify_sender, now)

    # ---------------------------------------------------------------- delivery

    def _accept(
        self, message: Mapping[str, Any], origin: Peer, sender: Hashable, notify_sender: SendToSender, now: float
    ) -> None:
        try:
            envelope = parse_envelope(message, next(self._numbers), origin, sender, notify_sender, now)
        except MalformedMessage as error:
            notify_sender(rejection_of(message, f"malformed message: {error}"))
            return
        if self._deliver(envelope):
            return
        if self._closed:
            envelope.report_delivery(0, "the node is stopping")
        elif not self._can_hold(envelope):
            envelope.report_delivery(0, _TOO_MANY_HELD)
        else:
            self._add_waiting(envelope, now)

    def _deliver(self, envelope: Envelope) -> bool:
        """Deliver it, or report that this is impossible; return False if it must wait for its recipient."""
        if not self._open:
            return False
        try:
            found = find_recipients(envelope.target, self._directory)
        except NoRecipient as no_recipient:
            envelope.report_delivery(0, str(no_recipient))
            return True
        if found is None:
            return False
        if envelope.target.is_one:
            return self._deliver_to_one(envelope, found)
        missed = [one for one in found if not (self._has_room(one, envelope) and self._send_envelope(one, envelope))]
        envelope.report_delivery(len(found) - len(missed), _no_room_error(missed) if missed else None)
        return True

    def _deliver_to_one(self, envelope: Envelope, found: Sequence[Recipient]) -> bool:
        living = [one for one in found if one.link.is_open]
        if not living:
            return False  # the next `advance` will see that it has ended
        if envelope.is_request and not self._can_hold(envelope):
            envelope.report_delivery(0, _TOO_MANY_HELD)
            return True
        free = [one for one in living if self._has_room(one, envelope)]
        if not free or not self._send_envelope(receiver := self._choose(free), envelope):
            envelope.report_delivery(0, _no_room_error(living))
        elif envelope.is_request:
            envelope.receiver, envelope.receiver_name = receiver.process, str(receiver.peer)
            self._hold(envelope)
            self._awaiting_reply[envelope.number] = envelope
        else:
            envelope.report_delivery(1)
        return True

    def _has_room(self, one: Recipient, envelope: Envelope) -> bool:
        return self._flow_control.has_room(one.process, envelope.sender, len(envelope.frame))

    def _send_envelope(self, one: Recipient, envelope: Envelope) -> bool:
        was_sent = one.link.send_frame(envelope.frame, MAX_QUEUED_BYTES)
        if was_sent:
            self._flow_control.record_sent(one.process, envelope.sender, len(envelope.frame))
        return was_sent

    # ---------------------------------------------------------------- waiting messages and open requests

    def _add_waiting(self, envelope: Envelope, now: float) -> None:
        if self._open:
            envelope.wait_until = min(envelope.wait_until, now + WAIT_TIMEOUT)
        self._hold(envelope)
        self._waiting.append(envelope)

    def _retry_waiting(self, now: float) -> None:
        waiting, self._waiting = self._waiting, []
        for envelope in waiting:
            self._release(envelope)
            if now >= envelope.expires_at + EXPIRY_MARGIN:
                envelope.report_failure("timed out", "late")
            elif now >= envelope.wait_until:
                envelope.report_delivery(0, f"its recipient did not become ready within {WAIT_TIMEOUT:.0f} s")
            elif not self._deliver(envelope):
                self._add_waiting(envelope, now)

    def _expire_requests(self, now: float) -> None:
        for envelope in [one for one in self._awaiting_reply.values() if now >= one.expires_at + EXPIRY_MARGIN]:
            self._remove_request(envelope)
            envelope.report_failure("timed out", "late")

    def _remove_request(self, envelope: Envelope) -> None:
        del self._awaiting_reply[envelope.number]
        self._release(envelope)

    def _can_hold(self, envelope: Envelope) -> bool:
        return self._held.has_room(envelope.sender, len(envelope.frame))

    def _hold(self, envelope: Envelope) -> None:
        self._held.add(envelope.sender, len(envelope.frame))
        self.due_at = min(self.due_at, envelope.due_at + EXPIRY_MARGIN)

    def _release(self, envelope: Envelope) -> None:
        self._held.subtract(envelope.sender, len(envelope.frame))

    # ---------------------------------------------------------------- changes of the directory

    def _read_directory(self) -> bool:
        """Read the directory; whether it has changed."""
        directory = self._look_up()
        if directory == self._directory:
            return False
        self._directory = directory
        listed = tuple(one.peer for one in directory.present if one.is_listed)
        if listed != self._listed:
            self._listed = listed
        return True

    def _drop_dead_processes(self) -> None:
        """Answer requests to dead processes, and drop what dead processes have sent and were sent."""
        living: set[Hashable] = {one.process for one in self._directory.present}
        senders = living | {CONTROL_SENDER}
        for envelope in list(self._awaiting_reply.values()):
            if envelope.receiver not in living:
                self._remove_request(envelope)
                envelope.report_failure(f"{envelope.receiver_name} has died before it answered", "died")
            elif envelope.sender not in senders:
                self._remove_request(envelope)
        for envelope in [one for one in self._waiting if one.sender not in senders]:
            self._waiting.remove(envelope)
            self._release(envelope)
        for process in self._announced.keys() - living:
            del self._announced[process]
            self._flow_control.remove(process)

    def _broadcast_processes(self) -> None:
        """Send every process the list of the others whenever it has changed."""
        frame = b""
        for one in self._directory.present:
            if one.ready and one.peer.role != "command" and self._announced.get(one.process) is not self._listed:
                processes = [peer.to_json() for peer in self._listed]
                frame = frame or encode({"type": "processes", "processes": processes}, escape_surrogates=True)
                if one.link.send_frame(frame):
                    self._announced[one.process] = self._listed


def _no_room_error(missed: Sequence[Recipient]) -> str:
    names = ", ".join(str(one.peer) for one in missed[:10])
    return f"too many unacknowledged messages for {names}"
