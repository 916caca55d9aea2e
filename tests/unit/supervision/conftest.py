from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from peerd.runtime.frames import FrameDecoder, Peer
from peerd.supervision.envelope import ProcessDirectory, Recipient
from peerd.supervision.event_loop import FrameChannel
from peerd.supervision.message_router import MessageRouter

KINDS = frozenset({("agent", "agent"), ("video", "worker"), ("site", "web"), ("manager", "manager")})


class RouterNode:
    """A router, and processes that the test begins and ends; it reads the other ends of their channels."""

    def __init__(self) -> None:
        self.now = 100.0
        self.present: list[Recipient] = []
        self.expected: set[tuple[str, str]] = set()
        self.ends: dict[str, socket.socket] = {}
        self._decoders: dict[str, FrameDecoder] = {}
        self._pids = count(101)
        self.chosen_from: list[str] = []
        self.router = MessageRouter(self._directory, self._choose)

    def __getitem__(self, slot: str) -> Recipient:
        return next(one for one in self.present if one.peer.slot == slot)

    def _directory(self) -> ProcessDirectory:
        return ProcessDirectory(tuple(self.present), frozenset(self.expected), KINDS)

    def _choose(self, among: Sequence[Recipient]) -> Recipient:
        self.chosen_from = [one.peer.slot for one in among]
        return among[-1]

    def begin(self, slot: str, role: str = "worker", **more: bool) -> Recipient:
        masters, its = socket.socketpair()
        its.setblocking(False)
        if slot in self.ends:
            self.ends[slot].close()
        self.ends[slot], self._decoders[slot] = its, FrameDecoder()
        kind = slot if role in ("agent", "manager") else slot.rpartition("-")[0]
        one = Recipient(object(), Peer(next(self._pids), slot, kind, role), FrameChannel(masters), **more)
        self.present.append(one)
        self.advance()
        return one

    def change(self, one: Recipient, *, ready: bool = True, leaving: bool = False) -> Recipient:
        changed = replace(one, ready=ready, leaving=leaving)
        self.present[self.present.index(one)] = changed
        self.advance()
        return changed

    def end(self, one: Recipient) -> None:
        self.present.remove(one)
        assert isinstance(one.link, FrameChannel)
        one.link.close()
        self.advance()

    def advance(self, after: float = 0.0) -> None:
        self.now += after
        self.router.advance(self.now)

    def send(self, sender: Recipient, to: object, number: int = 1, /, **more: Any) -> None:
        message = {"type": "message", "id": number, "to": to, "action": "hello", "data": {"n": number}} | more
        self.router.route(sender, message, self.now)

    def send_request(self, sender: Recipient, to: object, number: int = 1, /, **more: Any) -> None:
        self.send(sender, to, number, **({"request": True, "timeout": 10.0} | more))

    def received(self, slot: str, *types: str) -> list[dict[str, Any]]:
        frames: list[dict[str, Any]] = []
        try:
            while data := self.ends[slot].recv(65536):
                frames += self._decoders[slot].feed(data)
                for one in self.present:
                    if one.peer.slot == slot and isinstance(one.link, FrameChannel):
                        one.link.flush()
        except BlockingIOError:
            pass
        return [frame for frame in frames if frame["type"] in (types or ("message", "delivery", "reply"))]


@pytest.fixture
def router_node() -> Iterator[RouterNode]:
    made = RouterNode()
    yield made
    for one in made.present:
        if isinstance(one.link, FrameChannel):
            one.link.close()
    for end in made.ends.values():
        end.close()


@pytest.fixture
def node(router_node: RouterNode) -> RouterNode:
    """An agent and three workers, one of them a web process; open."""
    for slot, role in (("agent", "agent"), ("video-1", "worker"), ("video-2", "worker"), ("site-1", "web")):
        router_node.begin(slot, role)
    router_node.router.open(router_node.now)
    return router_node
