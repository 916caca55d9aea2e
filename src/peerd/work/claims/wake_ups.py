"""What a worker's process hears of the doorbell: it looks at once where there is work, and polls less while it can."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import msgspec

from peerd.domain.ring import ClaimRevoked, Ring, TasksAvailable
from peerd.doorbell.wake_up_socket import WakeUpSocket
from peerd.runtime.messages.inbox import Message
from peerd.runtime.process.process_context import DOORBELL_ACTION, RING_ACTION, ProcessContext
from peerd.work.settings import EffectiveWorkerSettings

SECOND_POLL_AFTER: Final = 0.1
"""Seconds between the look that a ring makes, and a second one where servers may lag behind one another."""


class WakeUpTarget(Protocol):
    """Who is woken: a `Runner`."""

    def ring(self) -> None:
        """Look for work at once."""
        ...

    async def check_claims(self, task_ids: frozenset[int]) -> None:
        """See whether these tasks, as far as they run here, are held still."""
        ...


class WakeUpReceiver:
    """The ear of one process; from `set_target` on there is somebody to be woken.

    Args:
        process: its messenger brings what the agent passes on.
        settings: the worker's: which queues, and how often it polls.
        may_lag: whether the server that one asks may not have yet what another one has committed.
    """

    def __init__(self, process: ProcessContext, settings: EffectiveWorkerSettings, *, may_lag: bool = True) -> None:
        self._process = process
        self._settings = settings
        self._queues = frozenset(settings.queues)
        self._may_lag = may_lag
        self._target: WakeUpTarget | None = None
        self._second_poll: asyncio.TimerHandle | None = None
        self._wake_up_socket: WakeUpSocket | None = None
        self._reporting_agent: int | None = None
        """The agent that says that the bell works, by its process id."""
        process.messenger.on(RING_ACTION, self._on_ring)
        process.messenger.on(DOORBELL_ACTION, self._on_doorbell_state)

    def set_target(self, runner: WakeUpTarget) -> None:
        """Wake this one from now on."""
        self._target = runner

    def listen(self, run_directory: Path) -> None:
        """Be rung at by the agent itself; where that cannot be, its messages come by way of the master."""
        ear = WakeUpSocket(run_directory, self._on_tasks_available)
        with suppress(OSError):
            ear.open()
            self._wake_up_socket = ear

    def close(self) -> None:
        """Hear no more rings of the agent's own."""
        if self._wake_up_socket is not None:
            self._wake_up_socket.close()

    def poll_every(self) -> float:
        """Seconds between two looks at the most: more, while the agent that said that the bell works is there."""
        agent = self._process.messenger.agent
        if agent is None or agent.pid != self._reporting_agent:
            return self._settings.poll_every
        return max(self._settings.poll_every, self._settings.rung_poll_every)

    def _poll(self, runner: WakeUpTarget) -> None:
        """Look, and where servers may lag once more a little later."""
        runner.ring()
        if self._may_lag and self._second_poll is None:
            self._second_poll = asyncio.get_running_loop().call_later(SECOND_POLL_AFTER, self._poll_again, runner)

    def _poll_again(self, runner: WakeUpTarget) -> None:
        self._second_poll = None
        runner.ring()

    def _on_doorbell_state(self, message: Message) -> None:
        if message.sender.role != "agent":
            return
        works = message.data["works"]
        self._reporting_agent = message.sender.pid if works else None
        if not works and self._target is not None:
            self._target.ring()  # it may be sleeping for long

    async def _on_ring(self, message: Message) -> None:
        if self._target is None or message.sender.role != "agent":
            return
        match msgspec.convert(message.data, Ring):
            case TasksAvailable() as work:
                self._on_tasks_available(work)
            case ClaimRevoked(tasks):
                await self._target.check_claims(frozenset(tasks))

    def _on_tasks_available(self, work: TasksAvailable) -> None:
        if self._target is not None and (not work.queues or not self._queues.isdisjoint(work.queues)):
            self._poll(self._target)
