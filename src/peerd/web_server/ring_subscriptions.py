"""Rings of the doorbell in a web process, for what its app reads while it has viewers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from peerd.domain.ring import ClaimRevoked, Ring, TasksAvailable
from peerd.doorbell.wake_up_socket import WakeUpSocket
from peerd.runtime.messages.inbox import Message
from peerd.runtime.process.process_context import RING_ACTION, ProcessContext

RINGS_STATE: Final = "peerd_rings"
"""The key of `scope["state"]` under which the app finds the `RingSubscriptions`."""

OnRing = Callable[[tuple[str, ...]], object]
"""Called on the event loop with the queues whose tasks have changed; with none if it may be any."""


class RingSubscriptions:
    """Calls functions for each ring about tasks. Without any, the process has no wake-up socket and gets few rings.

    Args:
        process: the web process.
        run_directory: of the node, in which the agent finds the socket.
    """

    def __init__(self, process: ProcessContext, run_directory: Path) -> None:
        self._subscribed: list[OnRing] = []
        self._wake_up_socket = WakeUpSocket(run_directory, self._on_tasks_available)
        process.messenger.on(RING_ACTION, self._on_message)

    def subscribe(self, on_ring: OnRing) -> None:
        """Call a function for each ring from now on."""
        if not self._subscribed:
            with suppress(OSError):  # the readings that need no ring find the same, a little later
                self._wake_up_socket.open()
        self._subscribed.append(on_ring)

    def unsubscribe(self, on_ring: OnRing) -> None:
        """Call it no more."""
        self._subscribed.remove(on_ring)
        if not self._subscribed:
            self._wake_up_socket.close()

    def _on_tasks_available(self, available: TasksAvailable) -> None:
        self._call(available.queues)

    def _on_message(self, message: Message) -> None:
        if message.sender.role == "agent" and isinstance(msgspec.convert(message.data, Ring), ClaimRevoked):
            self._call(())

    def _call(self, queues: tuple[str, ...]) -> None:
        for on_ring in list(self._subscribed):
            on_ring(queues)


def ring_subscriptions(state: Any) -> RingSubscriptions | None:
    """What the web process has put into the state of a request; None in another server.

    >>> ring_subscriptions(object()) is None
    True
    """
    found = getattr(state, RINGS_STATE, None)
    return found if isinstance(found, RingSubscriptions) else None
