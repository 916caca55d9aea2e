"""Rings of the doorbell in a gateway process, and how often it polls for waiting clients without them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from peerd.domain.ring import Ring, TasksAvailable
from peerd.doorbell.wake_up_socket import WakeUpSocket
from peerd.gateway.engine import Engine
from peerd.runtime.messages.inbox import Message
from peerd.runtime.process.process_context import DOORBELL_ACTION, RING_ACTION, ProcessContext

POLL_EVERY: Final = 1.0
"""Seconds between two polls for waiting clients where the doorbell does not work."""
RUNG_POLL_EVERY: Final = 10.0
"""The same while it works."""


class RingReceiver:
    """Receives the rings for one gateway process and passes them to its engine."""

    def __init__(self, process: ProcessContext, engine: Engine, run_directory: Path) -> None:
        self._engine = engine
        self._wake_up_socket = WakeUpSocket(run_directory, self._on_tasks_available)
        engine.poll_every = POLL_EVERY
        process.messenger.on(RING_ACTION, self._on_ring)
        process.messenger.on(DOORBELL_ACTION, self._on_doorbell_state)
        with suppress(OSError):  # the rings come as messages
            self._wake_up_socket.open()

    def close(self) -> None:
        self._wake_up_socket.close()

    def _on_tasks_available(self, available: TasksAvailable) -> None:
        self._engine.on_ring(available.queues)

    def _on_ring(self, message: Message) -> None:
        if message.sender.role == "agent":
            ring = msgspec.convert(message.data, Ring)
            if isinstance(ring, TasksAvailable):
                self._on_tasks_available(ring)

    def _on_doorbell_state(self, message: Message) -> None:
        if message.sender.role == "agent":
            works = message.data["works"]
            self._engine.poll_every = RUNG_POLL_EVERY if works else POLL_EVERY
            self._engine.on_ring(())
