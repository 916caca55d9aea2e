"""The post: carries messages between the node's processes, and tells everybody who is there.

What is sent before the node is ready waits until it is; what is for somebody who is just being replaced waits for the
replacement. All that waits, and all that a process has not taken yet, is bounded for each sender: a flood costs the
master no memory and the others nothing, and who floods is told that it was not delivered.

`look` is called in each round of the master. Between two looks the post goes by who was there at the last one, so that
what has waited for somebody is always handed over before what is sent later.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import count
from math import inf
from typing import Any, Final

from peerd.domain.quoting import quoted
from peerd.runtime.messages.addressing import UNANSWERED, UNANSWERED_BYTES, Peer
from peerd.runtime.messages.frames import encode
from peerd.supervision.control.channel import UNREAD
from peerd.supervision.messages.envelope import BadMessage, Letter, Tell, number_of, read, refusal
from peerd.supervision.messages.flow_control import Inboxes
from peerd.supervision.messages.recipients import Addressee, Directory, Later, Nobody, receivers

WAIT_WITHIN: Final = 30.0
"""Seconds that a message waits for a process that is expected."""

ROOM: Final = UNREAD * 3 // 4
"""Bytes that messages may take of what waits for a process to read; the rest is for what its master has to say."""

LATE: Final = 1.0
"""Seconds that a request is kept beyond its time: its sender's own clock is to end it."""

HELD_BYTES: Final = 2 * UNANSWERED_BYTES
"""Bytes of one sender's messages that the master itself keeps; more than a messenger sends without an answer."""

CONTROL: Final = "control"
"""The sender of messages that come over the control socket."""


class Post:
    """Carries messages. `now` is seconds of a clock that does not jump.

    Args:
        look_up: says who is there, and who is expected.
        choose: takes one of several.
    """

    def __init__(
        self,
        look_up: Callable[[], Directory],
        choose: Callable[[Sequence[Addressee]], Addressee] = random.choice,
    ) -> None:
        self._look_up = look_up
        self._choose = choose
        self._directory = Directory()
        self._open = False
        self._closed = False
        self._numbers = count(1)
        self._waiting: list[Letter] = []
        self._asked: dict[int, Letter] = {}
        self._held: dict[Hashable, tuple[int, int]] = {}
        self._inboxes = Inboxes()
        self._told: dict[Hashable, tuple[Peer, ...]] = {}
        self._due_at = inf

    # ---------------------------------------------------------------- what the master says

    def open(self, now: float) -> None:
        """The node is ready: deliver what waits."""
        self._open = True
        self._directory = self._look_up()
        self._go_through_waiting(now)

    def close(self) -> None:
        """The node stops: nobody is expected any more. Who is there can still be written to."""
        self._closed = True
        waiting, self._waiting = self._waiting, []
        for letter in waiting:
            self._release(letter)
            letter.delivered(0, "the node stops")

    def look(self, now: float) -> None:
        """See who has come and gone, and do what follows. It may be called at any time, and again."""
        directory = self._look_up()
        changed = directory != self._directory
        if changed:
            self._directory = directory
            self._bury()
        self._announce()
        if changed or now >= self._due_at:
            self._go_through_waiting(now)
            self._go_through_asked(now)
            self._set_due()

    @property
    def due_at(self) -> float:
        """When it must be looked at if nothing happens before."""
        return self._due_at

    # ---------------------------------------------------------------- what processes say

    def take(self, sender: Addressee, message: Mapping[str, Any], now: float) -> None:
        """Carry a message of a process."""

        def tell(frame: Mapping[str, object]) -> None:
            sender.link.send_frame(encode(frame), ROOM)

        self._accept(message, sender.peer, sender.process, tell, now)

    def take_reply(self, sender: Addressee, message: Mapping[str, Any]) -> None:
        """Carry a reply to who has asked; one that comes too late, or that nobody has asked for, is dropped."""
        number = number_of(message, "id")
        letter = self._asked.get(number) if number is not None else None
        if letter is not None and letter.receiver is sender.process:
            self._forget(letter)
            letter.answered(message)

    def taken(self, receiver: Addressee, message: Mapping[str, Any]) -> None:
        """Note how many messages a process has taken."""
        number = number_of(message, "count")
        if number is not None:
            self._inboxes.taken(receiver.process, number)

    def call_agent(self, action: object, data: object, timeout: object, answer: Tell, now: float) -> None:
        """Ask the agent, for somebody at the control socket.

        Args:
            action: what is asked.
            data: as of a message.
            timeout: seconds.
            answer: gets `{"data": …}` or `{"error": …}`, once.
            now: the time.
        """

        def tell(frame: Mapping[str, object]) -> None:
            answer({"data": frame["data"]} if "data" in frame else {"error": f"{quoted(action)}: {frame['error']}"})

        message = {"id": 0, "to": {"role": "agent"}, "action": action, "data": data, "request": True}
        origin = Peer(os.getpid(), CONTROL, CONTROL, CONTROL)
        self._accept(message | {"timeout": timeout}, origin, CONTROL, tell, now)

    # ---------------------------------------------------------------- the way of a letter

    def _accept(self, message: Mapping[str, Any], origin: Peer, sender: Hashable, tell: Tell, now: float) -> None:
        try:
            letter = read(message, next(self._numbers), origin, sender, tell, now)
        except BadMessage as error:
            tell(refusal(message, f"this is no message: {error}"))
            return
        if not self._deliver(letter):
            self._keep_waiting(letter, now)

    def _deliver(self, letter: Letter) -> bool:
        """Deliver it, or tell its sender that it cannot be; return whether it is dealt with."""
        if not self._open:
            return False
        try:
            found = receivers(letter.target, self._directory)
        except Nobody as nobody:
            letter.delivered(0, str(nobody))
            return True
        if isinstance(found, Later):
            return False
        if letter.target.is_one:
            return self._hand_to_one(letter, found)
        self._hand_to_all(letter, found)
        return True

    def _hand_to_one(self, letter: Letter, found: Sequence[Addressee]) -> bool:
        living = [one for one in found if one.link.is_open]
        if not living:
            return False  # its death will be known at the next look
        if letter.is_request and not self._may_hold(letter):
            letter.delivered(0, _too_many())
            return True
        free = [one for one in living if self._has_room(one, letter)]
        if not free or not self._hand_over(receiver := self._choose(free), letter):
            letter.delivered(0, _no_room(living))
        elif letter.is_request:
            self._expect_reply(letter, receiver)
        else:
            letter.delivered(1)
        return True

    def _hand_to_all(self, letter: Letter, found: Sequence[Addressee]) -> None:
        missed = [one for one in found if not (self._has_room(one, letter) and self._hand_over(one, letter))]
        letter.delivered(len(found) - len(missed), _no_room(missed) if missed else None)

    def _has_room(self, one: Addressee, letter: Letter) -> bool:
        return self._inboxes.has_room(one.process, letter.sender, len(letter.frame))

    def _hand_over(self, one: Addressee, letter: Letter) -> bool:
        handed = one.link.send_frame(letter.frame, ROOM)
        if handed:
            self._inboxes.put(one.process, letter.sender, len(letter.frame))
        return handed

    # ---------------------------------------------------------------- what waits for somebody, or for a reply

    def _keep_waiting(self, letter: Letter, now: float) -> None:
        if self._closed:
            letter.delivered(0, "the node stops")
        elif not self._may_hold(letter):
            letter.delivered(0, _too_many())
        else:
            self._wait(letter, now)

    def _wait(self, letter: Letter, now: float) -> None:
        if self._open:
            letter.wait_until = min(letter.wait_until, now + WAIT_WITHIN)
        self._hold(letter)
        self._waiting.append(letter)

    def _expect_reply(self, letter: Letter, receiver: Addressee) -> None:
        letter.receiver, letter.receiver_name = receiver.process, str(receiver.peer)
        self._hold(letter)
        self._asked[letter.number] = letter

    def _go_through_waiting(self, now: float) -> None:
        waiting, self._waiting = self._waiting, []
        for letter in waiting:
            self._release(letter)
            if now >= letter.forget_at + LATE:
                letter.failed("its time is over", "late")
            elif now >= letter.wait_until:
                letter.delivered(0, f"nobody was there to take it for {WAIT_WITHIN:.0f} s")
            elif not self._deliver(letter):
                self._wait(letter, now)

    def _go_through_asked(self, now: float) -> None:
        for letter in [letter for letter in self._asked.values() if now >= letter.forget_at + LATE]:
            self._forget(letter)
            letter.failed("its time is over", "late")

    def _forget(self, letter: Letter) -> None:
        del self._asked[letter.number]
        self._release(letter)

    def _may_hold(self, letter: Letter) -> bool:
        number, size = self._held.get(letter.sender, (0, 0))
        return number < UNANSWERED and size + len(letter.frame) <= HELD_BYTES

    def _hold(self, letter: Letter) -> None:
        number, size = self._held.get(letter.sender, (0, 0))
        self._held[letter.sender] = (number + 1, size + len(letter.frame))
        self._due_at = min(self._due_at, letter.due_at + LATE)

    def _release(self, letter: Letter) -> None:
        number, size = self._held[letter.sender]
        if number > 1:
            self._held[letter.sender] = (number - 1, size - len(letter.frame))
        else:
            del self._held[letter.sender]

    def _set_due(self) -> None:
        letters = [*self._waiting, *self._asked.values()]
        self._due_at = min((letter.due_at + LATE for letter in letters), default=inf)

    # ---------------------------------------------------------------- who is there

    def _bury(self) -> None:
        """Answer for the dead, and forget what was theirs."""
        living = {one.process for one in self._directory.present}
        for letter in [letter for letter in self._asked.values() if letter.receiver not in living]:
            self._forget(letter)
            letter.failed(f"{letter.receiver_name} has died before it answered", "died")
        for letter in [letter for letter in self._asked.values() if letter.sender not in living | {CONTROL}]:
            self._forget(letter)
        for letter in [letter for letter in self._waiting if letter.sender not in living | {CONTROL}]:
            self._waiting.remove(letter)
            self._release(letter)
        for process in self._told.keys() - living:
            del self._told[process]
            self._inboxes.forget(process)

    def _announce(self) -> None:
        """Tell everybody who is there, as often as it changes."""
        peers = tuple(one.peer for one in self._directory.present if one.is_there)
        for one in self._directory.present:
            if one.ready and one.listens and self._told.get(one.process) != peers:
                processes = [peer.to_json() for peer in peers]
                if one.link.send({"type": "processes", "processes": processes}):
                    self._told[one.process] = peers


def _too_many() -> str:
    return f"{UNANSWERED} messages of its sender wait already, or more than {HELD_BYTES} bytes of them"


def _no_room(missed: Sequence[Addressee]) -> str:
    names = ", ".join(str(one.peer) for one in missed[:10])
    return f"too much waits already to be taken by {names}"
