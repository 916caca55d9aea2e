"""Messages between the workers of an `InlineNode`: the master's router, without a master, sockets and processes."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from peerd.runtime.frames import FrameDecoder, Peer, encode
from peerd.runtime.observability.events import EventBus
from peerd.runtime.process.process_context import ProcessContext
from peerd.supervision.envelope import ProcessDirectory, Recipient
from peerd.supervision.message_router import MessageRouter

IDLE_WITHIN: Final = 10.0
"""Seconds after which a message handler that still runs is an error: nothing else happens meanwhile."""


class InlineMessageRouter:
    """Carries the messages of one `InlineNode`. It has workers, and no agent."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._present: list[Recipient] = []
        self._processes: list[ProcessContext] = []
        self._router = MessageRouter(self._directory)
        self._router.open(time.monotonic())
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._in_flight = 0

    def join(self, kind: str, events: EventBus, *, options: Mapping[str, Any], client: Any) -> ProcessContext:
        """Add a worker; return the context of its process."""
        slot = f"{kind}-1"
        link = _WorkerLink(self._node, slot, kind, lambda frame: self._transmit(frame, receive))
        process = ProcessContext(link, events, options=options, client=client)
        # Each has a number of its own in place of a pid, so that each can be addressed.
        peer = Peer(os.getpid() + len(self._present), slot, kind, "worker")
        channel = _RouterChannel(lambda frame: self._transmit(frame, process.messenger.receive))
        recipient = Recipient(process, peer, channel)

        def receive(message: Mapping[str, Any]) -> None:
            self._receive(recipient, message)

        self._present.append(recipient)
        self._processes.append(process)
        self._router.advance(time.monotonic())
        return process

    async def wait_until_idle(self) -> None:
        """Wait until all messages have arrived and have been handled."""
        try:
            async with asyncio.timeout(IDLE_WITHIN):
                await asyncio.sleep(0)
                while self._in_flight or not all(process.messenger.is_idle for process in self._processes):  # noqa: ASYNC110 - any turn of the loop may be the last one
                    await asyncio.sleep(0)
        except TimeoutError:
            raise RuntimeError(f"message handlers have not ended within {IDLE_WITHIN:.0f} s") from None

    def _directory(self) -> ProcessDirectory:
        kinds = frozenset((recipient.peer.kind, recipient.peer.role) for recipient in self._present)
        return ProcessDirectory(present=tuple(self._present), known=kinds)

    def _receive(self, sender: Recipient, message: Mapping[str, Any]) -> None:
        match message.get("type"):
            case "message":
                self._router.route(sender, message, time.monotonic())
            case "reply":
                self._router.route_reply(sender, message)
            case _:
                self._router.acknowledge(sender, message)

    def _transmit(self, frame: bytes, receive: Callable[[dict[str, Any]], object]) -> None:
        """Deliver a frame at a later turn of the event loop; from any thread."""
        (message,) = FrameDecoder().feed(frame)
        with self._lock:
            self._in_flight += 1
        self._loop.call_soon_threadsafe(self._deliver, receive, message)

    def _deliver(self, receive: Callable[[dict[str, Any]], object], message: dict[str, Any]) -> None:
        with self._lock:
            self._in_flight -= 1
        receive(message)


class _WorkerLink:
    """The link from a worker to the router."""

    def __init__(self, node: str, slot: str, kind: str, transmit: Callable[[bytes], None]) -> None:
        self.node = node
        self.slot = slot
        self.kind = kind
        self._transmit = transmit

    def send(self, message: Mapping[str, object]) -> None:
        self._transmit(encode(message))

    def stuck(self, attempt: Mapping[str, object] | None, reason: str) -> None:
        """Nothing to do: inline attempts have no hard limit."""

    def take_largest_lag(self) -> float:
        """Return 0: no lag is measured."""
        return 0.0


class _RouterChannel:
    """The channel from the router to a worker."""

    is_open = True

    def __init__(self, transmit: Callable[[bytes], None]) -> None:
        self._transmit = transmit

    def send(self, message: Mapping[str, object]) -> bool:
        return self.send_frame(encode(message))

    def send_frame(self, frame: bytes, max_unsent: int = 0) -> bool:
        self._transmit(frame)
        return True
