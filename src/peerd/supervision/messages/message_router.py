"""The post: carries messages between the node's processes, and tells everybody who is there.

What is sent before the node is ready waits until it is; what is for somebody who is just being replaced waits for the
replacement. All that waits, and all that a process has not taken yet, is bounded for each sender: a flood costs the
master no memory and the others nothing, and who floods is told that it was not delivered.

`advance` is called in each round of the master. Between two looks the post goes by who was there at the last one, so
that what has waited for somebody is always handed over before what is sent later.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import count
from math import inf
from typing import Any, Final

from peerd.domain.quoting import quoted
from peerd.runtime.messages.addressing import MAX_IN_FLIGHT, MAX_IN_FLIGHT_BYTES, Peer
from peerd.runtime.messages.frames import encode
from peerd.supervision.control.channel import MAX_UNSENT_BYTES
from peerd.supervision.messages.envelope import (
    Envelope,
    MalformedMessage,
    SendToSender,
    parse_envelope,
    parse_number,
    rejection_of,
)
from peerd.supervision.messages.flow_control import FlowControl
from peerd.supervision.messages.recipients import (
    NoRecipient,
    ProcessDirectory,
    Recipient,
    RecipientExpected,
    find_recipients,
)

WAIT_TIMEOUT: Final = 30.0
"""Seconds that a message waits for a process that is expected."""

MAX_QUEUED_BYTES: Final = MAX_UNSENT_BYTES * 3 // 4
"""Bytes that messages may take of what waits for a process to read; the rest is for what its master has to say."""

EXPIRY_MARGIN: Final = 1.0
"""Seconds that a request is kept beyond its time: its sender's own clock is to end it."""

MAX_HELD_BYTES: Final = 2 * MAX_IN_FLIGHT_BYTES
"""Bytes of one sender's messages that the master itself keeps; more than a messenger sends without an answer."""

CONTROL_SENDER: Final = "control"
"""The sender of messages that come over the control socket."""


class MessageRouter:
    """Carries messages. `now` is seconds of a clock that does not jump.

    Args:
        look_up: says who is there, and who is expected.
        choose: takes one of several.
    """

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
        self._held: dict[Hashable, tuple[int, int]] = {}
        self._flow_control = FlowControl()
        self._announced: dict[Hashable, tuple[Peer, ...]] = {}
        self._due_at = inf

    # ---------------------------------------------------------------- what the master says

    def open(self, now: float) -> None:
        """The node is ready: deliver what waits."""
        self._open = True
        self._directory = self._look_up()
        self._retry_waiting(now)

    def close(self) -> None:
        """The node stops: nobody is expected any more. Who is there can still be written to."""
        self._closed = True
        waiting, self._waiting = self._waiting, []
        for envelope in waiting:
            self._release(envelope)
            envelope.report_delivery(0, "the node stops")

    def advance(self, now: float) -> None:
        """See who has come and gone, and do what follows. It may be called at any time, and again."""
        directory = self._look_up()
        changed = directory != self._directory
        if changed:
            self._directory = directory
            self._drop_dead_processes()
        self._broadcast_processes()
        if changed or now >= self._due_at:
            self._retry_waiting(now)
            self._expire_requests(now)
            self._update_due_at()

    @property
    def due_at(self) -> float:
        """When it must be looked at if nothing happens before."""
        return self._due_at

    # ---------------------------------------------------------------- what processes say

    def route(self, sender: Recipient, message: Mapping[str, Any], now: float) -> None:
        """Carry a message of a process."""

        def notify_sender(frame: Mapping[str, object]) -> None:
            sender.link.send_frame(encode(frame), MAX_QUEUED_BYTES)

        self._accept(message, sender.peer, sender.process, notify_sender, now)

    def route_reply(self, sender: Recipient, message: Mapping[str, Any]) -> None:
        """Carry a reply to who has asked; one that comes too late, or that nobody has asked for, is dropped."""
        number = parse_number(message, "id")
        envelope = self._awaiting_reply.get(number) if number is not None else None
        if envelope is not None and envelope.receiver is sender.process:
            self._remove_request(envelope)
            envelope.report_reply(message)

    def acknowledge(self, receiver: Recipient, message: Mapping[str, Any]) -> None:
        """Note how many messages a process has taken."""
        number = parse_number(message, "count")
        if number is not None:
            self._flow_control.acknowledge(receiver.process, number)

    def call_agent(self, action: object, data: object, timeout: object, answer: SendToSender, now: float) -> None:
        """Ask the agent, for somebody at the control socket.

        Args:
            action: what is asked.
            data: as of a message.
            timeout: seconds.
            answer: gets `{"data": …}` or `{"error": …}`, once.
            now: the time.
        """

        def notify_sender(frame: Mapping[str, object]) -> None:
            answer({"data": frame["data"]} if "data" in frame else {"error": f"{quoted(action)}: {frame['error']}"})

        message = {"id": 0, "to": {"role": "agent"}, "action": action, "data": data, "request": True}
        origin = Peer(os.getpid(), CONTROL_SENDER, CONTROL_SENDER, CONTROL_SENDER)
        self._accept(message | {"timeout": timeout}, origin, CONTROL_SENDER, notify_sender, now)

    # ---------------------------------------------------------------- the way of a letter

    def _accept(
        self, message: Mapping[str, Any], origin: Peer, sender: Hashable, notify_sender: SendToSender, now: float
    ) -> None:
        try:
            envelope = parse_envelope(message, next(self._numbers), origin, sender, notify_sender, now)
        except MalformedMessage as error:
            notify_sender(rejection_of(message, f"this is no message: {error}"))
            return
        if not self._deliver(envelope):
            self._defer(envelope, now)

    def _deliver(self, envelope: Envelope) -> bool:
        """Deliver it, or tell its sender that it cannot be; return whether it is dealt with."""
        if not self._open:
            return False
        try:
            found = find_recipients(envelope.target, self._directory)
        except NoRecipient as no_recipient:
            envelope.report_delivery(0, str(no_recipient))
            return True
        if isinstance(found, RecipientExpected):
            return False
        if envelope.target.is_one:
            return self._deliver_to_one(envelope, found)
        self._deliver_to_all(envelope, found)
        return True

    def _deliver_to_one(self, envelope: Envelope, found: Sequence[Recipient]) -> bool:
        living = [one for one in found if one.link.is_open]
        if not living:
            return False  # its death will be known at the next look
        if envelope.is_request and not self._can_hold(envelope):
            envelope.report_delivery(0, _too_many_held_error())
            return True
        free = [one for one in living if self._has_room(one, envelope)]
        if not free or not self._send_envelope(receiver := self._choose(free), envelope):
            envelope.report_delivery(0, _no_room_error(living))
        elif envelope.is_request:
            self._expect_reply(envelope, receiver)
        else:
            envelope.report_delivery(1)
        return True

    def _deliver_to_all(self, envelope: Envelope, found: Sequence[Recipient]) -> None:
        missed = [one for one in found if not (self._has_room(one, envelope) and self._send_envelope(one, envelope))]
        envelope.report_delivery(len(found) - len(missed), _no_room_error(missed) if missed else None)

    def _has_room(self, one: Recipient, envelope: Envelope) -> bool:
        return self._flow_control.has_room(one.process, envelope.sender, len(envelope.frame))

    def _send_envelope(self, one: Recipient, envelope: Envelope) -> bool:
        was_sent = one.link.send_frame(envelope.frame, MAX_QUEUED_BYTES)
        if was_sent:
            self._flow_control.record_sent(one.process, envelope.sender, len(envelope.frame))
        return was_sent

    # ---------------------------------------------------------------- what waits for somebody, or for a reply

    def _defer(self, envelope: Envelope, now: float) -> None:
        if self._closed:
            envelope.report_delivery(0, "the node stops")
        elif not self._can_hold(envelope):
            envelope.report_delivery(0, _too_many_held_error())
        else:
            self._add_waiting(envelope, now)

    def _add_waiting(self, envelope: Envelope, now: float) -> None:
        if self._open:
            envelope.wait_until = min(envelope.wait_until, now + WAIT_TIMEOUT)
        self._hold(envelope)
        self._waiting.append(envelope)

    def _expect_reply(self, envelope: Envelope, receiver: Recipient) -> None:
        envelope.receiver, envelope.receiver_name = receiver.process, str(receiver.peer)
        self._hold(envelope)
        self._awaiting_reply[envelope.number] = envelope

    def _retry_waiting(self, now: float) -> None:
        waiting, self._waiting = self._waiting, []
        for envelope in waiting:
            self._release(envelope)
            if now >= envelope.expires_at + EXPIRY_MARGIN:
                envelope.report_failure("its time is over", "late")
            elif now >= envelope.wait_until:
                envelope.report_delivery(0, f"nobody was there to take it for {WAIT_TIMEOUT:.0f} s")
            elif not self._deliver(envelope):
                self._add_waiting(envelope, now)

    def _expire_requests(self, now: float) -> None:
        for envelope in [
            envelope for envelope in self._awaiting_reply.values() if now >= envelope.expires_at + EXPIRY_MARGIN
        ]:
            self._remove_request(envelope)
            envelope.report_failure("its time is over", "late")

    def _remove_request(self, envelope: Envelope) -> None:
        del self._awaiting_reply[envelope.number]
        self._release(envelope)

    def _can_hold(self, envelope: Envelope) -> bool:
        number, size = self._held.get(envelope.sender, (0, 0))
        return number < MAX_IN_FLIGHT and size + len(envelope.frame) <= MAX_HELD_BYTES

    def _hold(self, envelope: Envelope) -> None:
        number, size = self._held.get(envelope.sender, (0, 0))
        self._held[envelope.sender] = (number + 1, size + len(envelope.frame))
        self._due_at = min(self._due_at, envelope.due_at + EXPIRY_MARGIN)

    def _release(self, envelope: Envelope) -> None:
        number, size = self._held[envelope.sender]
        if number > 1:
            self._held[envelope.sender] = (number - 1, size - len(envelope.frame))
        else:
            del self._held[envelope.sender]

    def _update_due_at(self) -> None:
        envelopes = [*self._waiting, *self._awaiting_reply.values()]
        self._due_at = min((envelope.due_at + EXPIRY_MARGIN for envelope in envelopes), default=inf)

    # ---------------------------------------------------------------- who is there

    def _drop_dead_processes(self) -> None:
        """Answer for the dead, and forget what was theirs."""
        living = {one.process for one in self._directory.present}
        for envelope in [envelope for envelope in self._awaiting_reply.values() if envelope.receiver not in living]:
            self._remove_request(envelope)
            envelope.report_failure(f"{envelope.receiver_name} has died before it answered", "died")
        for envelope in [
            envelope for envelope in self._awaiting_reply.values() if envelope.sender not in living | {CONTROL_SENDER}
        ]:
            self._remove_request(envelope)
        for envelope in [envelope for envelope in self._waiting if envelope.sender not in living | {CONTROL_SENDER}]:
            self._waiting.remove(envelope)
            self._release(envelope)
        for process in self._announced.keys() - living:
            del self._announced[process]
            self._flow_control.remove(process)

    def _broadcast_processes(self) -> None:
        """Tell everybody who is there, as often as it changes."""
        peers = tuple(one.peer for one in self._directory.present if one.is_available)
        for one in self._directory.present:
            if one.ready and one.receives_frames and self._announced.get(one.process) != peers:
                processes = [peer.to_json() for peer in peers]
                if one.link.send({"type": "processes", "processes": processes}):
                    self._announced[one.process] = peers


def _too_many_held_error() -> str:
    return f"{MAX_IN_FLIGHT} messages of its sender wait already, or more than {MAX_HELD_BYTES} bytes of them"


def _no_room_error(missed: Sequence[Recipient]) -> str:
    names = ", ".join(str(one.peer) for one in missed[:10])
    return f"too much waits already to be taken by {names}"
