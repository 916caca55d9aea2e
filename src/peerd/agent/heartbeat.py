"""The node's heartbeat: others must see that it is alive, whatever user code does to the agent's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from peerd.domain.backoff import LONGEST_PAUSE, Backoff
from peerd.domain.errors import DatabaseUnavailable, NodeReplaced
from peerd.runtime.concurrency.threads import PeriodicStep, PeriodicThread
from peerd.store.connection.database import Database
from peerd.store.connection.outages import OutageTracker
from peerd.store.nodes.nodes import heartbeat_only
from peerd.store.nodes.processes import heartbeat_process

RETRY_AFTER: Final = 0.2
"""Seconds after a beat that the database did not answer; more after each further one, up to the time between beats."""
PROCESS_BEAT_EVERY: Final = 60.0
"""Seconds between two beats of the agent's own process, whose record is purged when it is silent for days."""
END_WITHIN: Final = 3.0
"""Seconds that the beat under way may take to end."""


class NodeHeartbeat:
    """Beats for a node and its agent's process, in a thread of its own.

    Args:
        database: of this process.
        node: its name.
        incarnation: of this life of its master.
        process_id: of the agent.
        every: seconds between two beats.
        outages: what is learned about the database.
        on_replaced: called on the event loop when another life of the name has begun.
        ticker: makes the thread.
    """

    def __init__(
        self,
        database: Database,
        *,
        node: str,
        incarnation: str,
        process_id: int,
        every: float,
        outages: OutageTracker,
        on_replaced: Callable[[NodeReplaced], None],
        ticker: Callable[[PeriodicStep], PeriodicThread],
    ) -> None:
        self._database = database
        self._node = node
        self._incarnation = incarnation
        self._process_id = process_id
        self._every = every
        self._outages = outages
        self._on_replaced = on_replaced
        self._ticker = ticker
        self._next_process_beat = 0.0
        self._pauses = Backoff(first=RETRY_AFTER, longest=min(every, LONGEST_PAUSE))

    async def run(self) -> None:
        """Beat until cancelled; what a beat raises unexpectedly is raised here."""
        self._loop = asyncio.get_running_loop()
        self._failure: asyncio.Future[None] = self._loop.create_future()
        ticker = self._ticker(self._tick)
        ticker.start()
        try:
            await self._failure
        except asyncio.CancelledError:
            ticker.stop()
            await asyncio.to_thread(ticker.join, END_WITHIN)  # a beat after the end would look like a fault
            raise
        finally:
            ticker.stop()

    def _tick(self, now: float) -> float:
        try:
            self._beat(now)
        except DatabaseUnavailable as error:
            self._outages.lost(error)
            return self._pauses.next()
        except NodeReplaced as error:
            self._call_on_loop(self._on_replaced, error)
        except Exception as error:  # noqa: BLE001 - it is the component's failure, which is told and tried again
            self._call_on_loop(self._fail, error)
        else:
            self._outages.found()
            self._pauses.reset()
        return self._every

    def _beat(self, now: float) -> None:
        self._database.run_idempotent(heartbeat_only, self._node, self._incarnation)
        if now >= self._next_process_beat:
            self._database.run_idempotent(heartbeat_process, self._process_id)
            self._next_process_beat = now + PROCESS_BEAT_EVERY

    def _call_on_loop(self, callback: Callable[..., None], error: Exception) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody hears it any more
            self._loop.call_soon_threadsafe(callback, error)

    def _fail(self, error: Exception) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)
