"""Messages between the workers of an `InlineNode`: the master's own post, without a master, sockets and processes."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from peerd.runtime.messages.addressing import Peer
from peerd.runtime.messages.frames import FrameDecoder, encode
from peerd.runtime.observability.events import EventBus
from peerd.runtime.process.process_context import ProcessContext
from peerd.supervision.messages.message_router import MessageRouter
from peerd.supervision.messages.recipients import ProcessDirectory, Recipient

IDLE_WITHIN: Final = 10.0
"""Seconds after which a handler of messages that goes on is an error: nothing else happens meanwhile."""


class InlineMessageRouter:
    """Carries the messages of one `InlineNode`. It has workers, and no agent.

    Args:
        node: its name.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._in_flight = _InFlightFrames()
        self._present: list[Recipient] = []
        self._processes: list[ProcessContext] = []
        self._router = MessageRouter(self._directory)
        self._router.open(time.monotonic())

    def join(self, kind: str, events: EventBus, *, options: Mapping[str, Any], client: Any) -> ProcessContext:
        """Take a worker in; return what its process would be."""
        slot = f"{kind}-1"
        link = _WorkerLink(self._node, slot, kind, lambda message: self._receive(recipient, message), self._in_flight)
        process = ProcessContext(link, events, options=options, client=client)
        # Each has a number of its own, as processes have, so that each can be written to.
        peer = Peer(os.getpid() + len(self._present), slot, kind, "worker")
        recipient = Recipient(process, peer, _RouterChannel(process, self._in_flight))
        self._present.append(recipient)
        self._processes.append(process)
        self._router.advance(time.monotonic())
        return process

    async def wait_until_idle(self) -> None:
        """Wait until all messages have come and have been handled."""
        try:
            async with asyncio.timeout(IDLE_WITHIN):
                await asyncio.sleep(0)
                while not self._is_idle():  # noqa: ASYNC110 - any turn of the loop may be the last one
                    await asyncio.sleep(0)
        except TimeoutError:
            raise RuntimeError(f"handlers of messages have not ended within {IDLE_WITHIN:.0f} s") from None

    def _is_idle(self) -> bool:
        return not self._in_flight.count and all(process.messenger.is_idle for process in self._processes)

    def _directory(self) -> ProcessDirectory:
        kinds = frozenset((one.peer.kind, one.peer.role) for one in self._present)
        return ProcessDirectory(present=tuple(self._present), known=kinds)

    def _receive(self, sender: Recipient, message: Mapping[str, Any]) -> None:
        match message.get("type"):
            case "message":
                self._router.route(sender, message, time.monotonic())
            case "reply":
                self._router.route_reply(sender, message)
            case _:
                self._router.acknowledge(sender, message)


class _InFlightFrames:
    """Frames that have been sent and have not arrived."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()

    def send(self, frame: bytes, deliver: Callable[[dict[str, Any]], object]) -> None:
        """Let one arrive when the event loop comes to it; from any thread."""
        (message,) = FrameDecoder().feed(frame)
        with self._lock:
            self.count += 1
        self._loop.call_soon_threadsafe(self._deliver, deliver, message)

    def _deliver(self, deliver: Callable[[dict[str, Any]], object], message: dict[str, Any]) -> None:
        with self._lock:
            self.count -= 1
        deliver(message)


class _WorkerLink:
    """A worker's way to the post."""

    def __init__(
        self, node: str, slot: str, kind: str, route: Callable[[dict[str, Any]], None], in_flight: _InFlightFrames
    ) -> None:
        self.node = node
        self.slot = slot
        self.kind = kind
        self._receive = route
        self._in_flight = in_flight

    def send(self, message: Mapping[str, object]) -> None:
        self._in_flight.send(encode(message), self._receive)

    def stuck(self, attempt: Mapping[str, object] | None, reason: str) -> None:
        """Nobody runs schedules here, and inline attempts have no hard limit."""


class _RouterChannel:
    """The post's way to a worker."""

    is_open = True

    def __init__(self, worker: ProcessContext, in_flight: _InFlightFrames) -> None:
        self._worker = worker
        self._in_flight = in_flight

    def send(self, message: Mapping[str, object]) -> bool:
        return self.send_frame(encode(message))

    def send_frame(self, frame: bytes, max_unsent: int = 0) -> bool:
        self._in_flight.send(frame, self._worker.messenger.receive)
        return True
