"""The node's heartbeat, in a thread: user code that blocks the agent's event loop does not stop it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from peerd.domain.backoff import LONGEST_PAUSE, Backoff
from peerd.domain.errors import DatabaseUnavailable, NodeReplaced, RowLocked
from peerd.runtime.concurrency.threads import PeriodicStep, PeriodicThread
from peerd.store.connection.database import Database
from peerd.store.connection.outages import OutageTracker
from peerd.store.nodes.nodes import heartbeat_only
from peerd.store.nodes.processes import heartbeat_process

RETRY_AFTER: Final = 0.2
"""Seconds until a heartbeat that the database did not answer is repeated; they grow up to the heartbeat's interval."""
PROCESS_HEARTBEAT_INTERVAL: Final = 60.0
"""Seconds between two heartbeats of the agent's process, whose record is purged after days of silence."""
END_WITHIN: Final = 3.0
"""Seconds that the heartbeat being written may take to end."""


@dataclass(eq=False)
class NodeHeartbeat:
    """Writes the heartbeat of a node and of its agent's process."""

    database: Database
    node: str
    incarnation: str
    process_id: int
    every: float
    """Seconds between two heartbeats."""
    outages: OutageTracker
    on_replaced: Callable[[NodeReplaced], None]
    """Called on the event loop when another incarnation of the node has registered."""
    ticker: Callable[[PeriodicStep], PeriodicThread]
    """Makes the thread."""

    def __post_init__(self) -> None:
        self._next_process_heartbeat = 0.0
        self._pauses = Backoff(first=RETRY_AFTER, longest=min(self.every, LONGEST_PAUSE))

    async def run(self) -> None:
        """Write heartbeats until cancelled; an unexpected exception of the thread is raised here."""
        self._loop = asyncio.get_running_loop()
        self._failure: asyncio.Future[None] = self._loop.create_future()
        ticker = self.ticker(self._tick)
        ticker.start()
        try:
            await self._failure
        except asyncio.CancelledError:
            ticker.stop()
            await asyncio.to_thread(ticker.join, END_WITHIN)  # a heartbeat after the end would look like a fault
            raise
        finally:
            ticker.stop()

    def _tick(self, now: float) -> float:
        try:
            self.database.run_short(heartbeat_only, self.node, self.incarnation)
            if now >= self._next_process_heartbeat:
                self.database.run_short(heartbeat_process, self.process_id)
                self._next_process_heartbeat = now + PROCESS_HEARTBEAT_INTERVAL
        except DatabaseUnavailable as error:
            self.outages.lost(error)
            return self._pauses.next()
        except RowLocked:  # no outage: the database has answered
            return self._pauses.next()
        except NodeReplaced as error:
            self._call_on_loop(self.on_replaced, error)
        except Exception as error:  # noqa: BLE001 - the component fails, and is restarted
            self._call_on_loop(self._fail, error)
        else:
            self.outages.found()
            self._pauses.reset()
        return self.every

    def _call_on_loop(self, callback: Callable[..., None], error: Exception) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(callback, error)

    def _fail(self, error: Exception) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)
