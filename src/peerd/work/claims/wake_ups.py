"""What a worker's process hears of the doorbell: it looks at once where there is work, and polls less while it can."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import msgspec

from peerd.domain.ring import Ring, Taken, Work
from peerd.doorbell.wake_up_socket import Ear
from peerd.runtime.messages.message_handlers import Message
from peerd.runtime.process.process_context import BELL, RING, ProcessContext
from peerd.work.settings import Settings

AGAIN_AFTER: Final = 0.1
"""Seconds between the look that a ring makes, and a second one where servers may lag behind one another."""


class Wakes(Protocol):
    """Who is woken: a `Runner`."""

    def ring(self) -> None:
        """Look for work at once."""
        ...

    async def look_at(self, task_ids: frozenset[int]) -> None:
        """See whether these tasks, as far as they run here, are held still."""
        ...


class Hearing:
    """The ear of one process; from `wake` on there is somebody to be woken.

    Args:
        process: its messenger brings what the agent passes on.
        settings: the worker's: which queues, and how often it polls.
        may_lag: whether the server that one asks may not have yet what another one has committed.
    """

    def __init__(self, process: ProcessContext, settings: Settings, *, may_lag: bool = True) -> None:
        self._process = process
        self._settings = settings
        self._queues = frozenset(settings.queues)
        self._may_lag = may_lag
        self._runner: Wakes | None = None
        self._again: asyncio.TimerHandle | None = None
        self._ear: Ear | None = None
        self._told_by: int | None = None
        """The agent that says that the bell works, by its process id."""
        process.messenger.on(RING, self._hear)
        process.messenger.on(BELL, self._learn)

    def wake(self, runner: Wakes) -> None:
        """Wake this one from now on."""
        self._runner = runner

    def listen(self, run_directory: Path) -> None:
        """Be rung at by the agent itself; where that cannot be, its messages come by way of the master."""
        ear = Ear(run_directory, self._hear_work)
        with suppress(OSError):
            ear.open()
            self._ear = ear

    def close(self) -> None:
        """Hear no more rings of the agent's own."""
        if self._ear is not None:
            self._ear.close()

    def poll_every(self) -> float:
        """Seconds between two looks at the most: more, while the agent that said that the bell works is there."""
        agent = self._process.messenger.agent
        if agent is None or agent.pid != self._told_by:
            return self._settings.poll_every
        return max(self._settings.poll_every, self._settings.rung_poll_every)

    def _look(self, runner: Wakes) -> None:
        """Look, and where servers may lag once more a little later."""
        runner.ring()
        if self._may_lag and self._again is None:
            self._again = asyncio.get_running_loop().call_later(AGAIN_AFTER, self._look_again, runner)

    def _look_again(self, runner: Wakes) -> None:
        self._again = None
        runner.ring()

    def _learn(self, message: Message) -> None:
        if message.sender.role != "agent":
            return
        works = message.data["works"]
        self._told_by = message.sender.pid if works else None
        if not works and self._runner is not None:
            self._runner.ring()  # it may be sleeping for long

    async def _hear(self, message: Message) -> None:
        if self._runner is None or message.sender.role != "agent":
            return
        match msgspec.convert(message.data, Ring):
            case Work() as work:
                self._hear_work(work)
            case Taken(tasks):
                await self._runner.look_at(frozenset(tasks))

    def _hear_work(self, work: Work) -> None:
        if self._runner is not None and (not work.queues or not self._queues.isdisjoint(work.queues)):
            self._look(self._runner)
