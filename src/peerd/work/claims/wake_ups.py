"""Doorbell messages in a worker process: poll at once after a ring, and poll less often while the doorbell works."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from peerd.domain.ring import ClaimRevoked, Ring, TasksAvailable
from peerd.doorbell.wake_up_socket import WakeUpSocket
from peerd.runtime.messages.inbox import Message
from peerd.runtime.process.process_context import DOORBELL_ACTION, RING_ACTION, ProcessContext
from peerd.work.worker import EffectiveWorkerSettings

if TYPE_CHECKING:
    from peerd.work.task_runner import Runner

SECOND_POLL_AFTER: Final = 0.1
"""Seconds between the poll that a ring causes and a second one, where a server may lag behind another."""


class WakeUpReceiver:
    """Receives the rings for one process.

    `may_lag` is whether the server that is read may lack for a moment what another one has committed.
    """

    def __init__(self, process: ProcessContext, settings: EffectiveWorkerSettings, *, may_lag: bool = True) -> None:
        self._process = process
        self._settings = settings
        self._queues = frozenset(settings.queues)
        self._may_lag = may_lag
        self._runner: Runner | None = None
        self._second_poll: asyncio.TimerHandle | None = None
        self._wake_up_socket: WakeUpSocket | None = None
        self._reporting_agent: int | None = None
        """Process id of the agent that reported a working doorbell."""
        process.messenger.on(RING_ACTION, self._on_ring)
        process.messenger.on(DOORBELL_ACTION, self._on_doorbell_state)

    def set_runner(self, runner: Runner) -> None:
        self._runner = runner

    def listen(self, run_directory: Path) -> None:
        """Open a socket for the agent's rings; where that fails, they come as messages through the master."""
        wake_up_socket = WakeUpSocket(run_directory, self._on_tasks_available)
        with suppress(OSError):
            wake_up_socket.open()
            self._wake_up_socket = wake_up_socket

    def close(self) -> None:
        if self._wake_up_socket is not None:
            self._wake_up_socket.close()

    def poll_every(self) -> float:
        """Seconds between two polls at the most: more while the agent that reported a working doorbell lives."""
        agent = self._process.messenger.agent
        if agent is None or agent.pid != self._reporting_agent:
            return self._settings.poll_every
        return max(self._settings.poll_every, self._settings.rung_poll_every)

    def _poll_again(self, runner: Runner) -> None:
        self._second_poll = None
        runner.ring()

    def _on_doorbell_state(self, message: Message) -> None:
        if message.sender.role != "agent":
            return
        works = message.data["works"]
        self._reporting_agent = message.sender.pid if works else None
        if not works and self._runner is not None:
            self._runner.ring()  # its pause may be a long one

    async def _on_ring(self, message: Message) -> None:
        if self._runner is None or message.sender.role != "agent":
            return
        match msgspec.convert(message.data, Ring):
            case TasksAvailable() as available:
                self._on_tasks_available(available)
            case ClaimRevoked(tasks):
                await self._runner.check_claims(frozenset(tasks))

    def _on_tasks_available(self, available: TasksAvailable) -> None:
        runner = self._runner
        if runner is None or (available.queues and self._queues.isdisjoint(available.queues)):
            return
        runner.ring()
        if self._may_lag and self._second_poll is None:
            self._second_poll = asyncio.get_running_loop().call_later(SECOND_POLL_AFTER, self._poll_again, runner)
