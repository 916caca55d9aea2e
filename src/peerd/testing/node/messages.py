"""Messages between the workers of an `InlineNode`: the master's own post, without a master, sockets and processes."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from peerd.runtime.messages.addressing import Peer
from peerd.runtime.messages.frames import Decoder, encode
from peerd.runtime.observability.events import Events
from peerd.runtime.process.process_context import ProcessContext
from peerd.supervision.messages.message_router import Post
from peerd.supervision.messages.recipients import Addressee, Directory

SETTLE_WITHIN: Final = 10.0
"""Seconds after which a handler of messages that goes on is an error: nothing else happens meanwhile."""


class InlinePost:
    """Carries the messages of one `InlineNode`. It has workers, and no agent.

    Args:
        node: its name.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._under_way = _UnderWay()
        self._present: list[Addressee] = []
        self._processes: list[ProcessContext] = []
        self._post = Post(self._directory)
        self._post.open(time.monotonic())

    def join(self, kind: str, events: Events, *, options: Mapping[str, Any], client: Any) -> ProcessContext:
        """Take a worker in; return what its process would be."""
        slot = f"{kind}-1"
        to_post = _WorkersEnd(self._node, slot, kind, lambda message: self._take(joined, message), self._under_way)
        process = ProcessContext(to_post, events, options=options, client=client)
        # Each has a number of its own, as processes have, so that each can be written to.
        peer = Peer(os.getpid() + len(self._present), slot, kind, "worker")
        joined = Addressee(process, peer, _PostsEnd(process, self._under_way))
        self._present.append(joined)
        self._processes.append(process)
        self._post.look(time.monotonic())
        return process

    async def settle(self) -> None:
        """Wait until all messages have come and have been handled."""
        try:
            async with asyncio.timeout(SETTLE_WITHIN):
                await asyncio.sleep(0)
                while not self._is_settled():  # noqa: ASYNC110 - any turn of the loop may be the last one
                    await asyncio.sleep(0)
        except TimeoutError:
            raise RuntimeError(f"handlers of messages have not ended within {SETTLE_WITHIN:.0f} s") from None

    def _is_settled(self) -> bool:
        return not self._under_way.count and all(process.messenger.is_idle for process in self._processes)

    def _directory(self) -> Directory:
        kinds = frozenset((one.peer.kind, one.peer.role) for one in self._present)
        return Directory(present=tuple(self._present), known=kinds)

    def _take(self, sender: Addressee, message: Mapping[str, Any]) -> None:
        match message.get("type"):
            case "message":
                self._post.take(sender, message, time.monotonic())
            case "reply":
                self._post.take_reply(sender, message)
            case _:
                self._post.taken(sender, message)


class _UnderWay:
    """Frames that have been sent and have not arrived."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()

    def send(self, frame: bytes, arrive: Callable[[dict[str, Any]], object]) -> None:
        """Let one arrive when the event loop comes to it; from any thread."""
        (message,) = Decoder().feed(frame)
        with self._lock:
            self.count += 1
        self._loop.call_soon_threadsafe(self._arrive, arrive, message)

    def _arrive(self, arrive: Callable[[dict[str, Any]], object], message: dict[str, Any]) -> None:
        with self._lock:
            self.count -= 1
        arrive(message)


class _WorkersEnd:
    """A worker's way to the post."""

    def __init__(
        self, node: str, slot: str, kind: str, take: Callable[[dict[str, Any]], None], under_way: _UnderWay
    ) -> None:
        self.node = node
        self.slot = slot
        self.kind = kind
        self._take = take
        self._under_way = under_way

    def send(self, message: Mapping[str, object]) -> None:
        self._under_way.send(encode(message), self._take)

    def stuck(self, attempt: Mapping[str, object] | None, reason: str) -> None:
        """Nobody runs schedules here, and inline attempts have no hard limit."""


class _PostsEnd:
    """The post's way to a worker."""

    is_open = True

    def __init__(self, worker: ProcessContext, under_way: _UnderWay) -> None:
        self._worker = worker
        self._under_way = under_way

    def send(self, message: Mapping[str, object]) -> bool:
        return self.send_frame(encode(message))

    def send_frame(self, frame: bytes, room: int = 0) -> bool:
        self._under_way.send(frame, self._worker.messenger.receive)
        return True
