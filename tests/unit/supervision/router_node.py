"""A node of values for the post: a directory that the test writes, and channels whose other ends the test reads."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from peerd.runtime.messages.addressing import Peer
from peerd.runtime.messages.frames import Decoder
from peerd.supervision.control.channel import Channel
from peerd.supervision.messages.message_router import Post
from peerd.supervision.messages.recipients import Addressee, Directory

KINDS = frozenset({("agent", "agent"), ("video", "worker"), ("site", "web"), ("manager", "manager")})


class World:
    """A node whose processes the test begins and ends; `now` is the test's."""

    def __init__(self) -> None:
        self.now = 100.0
        self.present: list[Addressee] = []
        self.expected: set[tuple[str, str]] = set()
        self.ends: dict[str, socket.socket] = {}
        self._decoders: dict[str, Decoder] = {}
        self._pids = count(101)
        self.chosen_from: list[str] = []
        self.post = Post(self._directory, self._choose)

    def _directory(self) -> Directory:
        return Directory(tuple(self.present), frozenset(self.expected), KINDS)

    def _choose(self, among: Sequence[Addressee]) -> Addressee:
        self.chosen_from = [one.peer.slot for one in among]
        return among[-1]

    def begin(self, slot: str, role: str = "worker", **more: bool) -> Addressee:
        masters, its = socket.socketpair()
        its.setblocking(False)
        if slot in self.ends:
            self.ends[slot].close()
        self.ends[slot], self._decoders[slot] = its, Decoder()
        kind = slot if role in ("agent", "manager") else slot.rpartition("-")[0]
        one = Addressee(object(), Peer(next(self._pids), slot, kind, role), Channel(masters), **more)
        self.present.append(one)
        self.look()
        return one

    def change(self, one: Addressee, *, ready: bool = True, leaving: bool = False) -> Addressee:
        changed = replace(one, ready=ready, leaving=leaving)
        self.present[self.present.index(one)] = changed
        self.look()
        return changed

    def end(self, one: Addressee) -> None:
        self.present.remove(one)
        assert isinstance(one.link, Channel)
        one.link.close()
        self.look()

    def look(self, after: float = 0.0) -> None:
        self.now += after
        self.post.look(self.now)

    def send(self, sender: Addressee, to: object, number: int = 1, /, **more: Any) -> None:
        message = {"type": "message", "id": number, "to": to, "action": "hello", "data": {"n": number}} | more
        self.post.take(sender, message, self.now)

    def ask(self, sender: Addressee, to: object, number: int = 1, /, **more: Any) -> None:
        self.send(sender, to, number, **({"request": True, "timeout": 10.0} | more))

    def heard(self, slot: str, *types: str) -> list[dict[str, Any]]:
        frames: list[dict[str, Any]] = []
        try:
            while data := self.ends[slot].recv(65536):
                frames += self._decoders[slot].feed(data)
                for one in self.present:
                    if one.peer.slot == slot and isinstance(one.link, Channel):
                        one.link.flush()
        except BlockingIOError:
            pass
        return [frame for frame in frames if frame["type"] in (types or ("message", "delivery", "reply"))]


def by_name(world: World, slot: str) -> Addressee:
    return next(one for one in world.present if one.peer.slot == slot)
