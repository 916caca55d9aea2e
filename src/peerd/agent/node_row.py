"""The row of the node: its registration, and its heartbeat. At most one living incarnation may have a name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from peerd import __version__
from peerd.config.settings import NodeSettings
from peerd.domain.errors import DatabaseUnavailable, NodeNameTaken, NodeReplaced, RowLocked
from peerd.domain.pacing import LONGEST_PAUSE, Backoff
from peerd.runtime.concurrency import PeriodicStep, PeriodicThread, call_on_loop
from peerd.runtime.observability.events import EventBus
from peerd.runtime.observability.log_messages import node_registered, waiting_for_node
from peerd.shell import ProcessShell
from peerd.store.connection.database import DatabaseThreads
from peerd.store.nodes import (
    Node,
    end_earlier_processes,
    find_node,
    heartbeat,
    heartbeat_only,
    heartbeat_process,
    is_node_alive,
    register_incarnation,
)

CHECKS_WITHIN_SILENCE: Final = 20
"""How often an earlier incarnation is read until its silence counts as its end."""
RETRY_AFTER: Final = 0.2
"""Seconds until a heartbeat that the database did not answer is repeated; they grow up to the heartbeat's interval."""
PROCESS_HEARTBEAT_INTERVAL: Final = 60.0
"""Seconds between two heartbeats of the agent's process, whose record is purged after days of silence."""
END_WITHIN: Final = 3.0
"""Seconds that the heartbeat being written may take to end."""


async def register_node(
    database: DatabaseThreads,
    name: str,
    incarnation: str,
    settings: NodeSettings,
    *,
    silence: float,
    events: EventBus,
) -> Node:
    """Register an incarnation of a node, or find it registered by an agent before this one.

    Another incarnation counts as ended after `silence` seconds without a heartbeat. Its claims are not touched: where
    only the master was killed, its processes may still finish; if they are dead too, the tasks are rescued later.

    Raises:
        NodeNameTaken: another incarnation of this name is alive.
    """
    while True:
        node = await database.read(find_node, name)
        if node is not None and node.incarnation == incarnation:
            return await database.run(heartbeat, name, incarnation)
        if node is not None and node.incarnation is not None:
            await _wait_until_silent(database, node, silence, events)
        registered = await database.run(
            register_incarnation,
            name,
            incarnation,
            replaces=None if node is None else node.incarnation,
            address=settings.address,
            zone=settings.zone,
            version=__version__,
        )
        if registered is not None:
            break
    node = await database.run(heartbeat, name, incarnation)
    await database.run(end_earlier_processes, node.id, incarnation)
    events.emit(node_registered(name, node.id))
    return node


async def _wait_until_silent(database: DatabaseThreads, previous: Node, silence: float, events: EventBus) -> None:
    """Wait until an earlier incarnation has been silent for long enough; a heartbeat of it proves that it is alive."""
    now = asyncio.get_running_loop().time
    began = now()
    logged = False
    while await database.read(is_node_alive, previous.name, silence):
        found = await database.read(find_node, previous.name)
        if found is None or found.incarnation != previous.incarnation:
            return
        if found.checked_at != previous.checked_at or now() - began > 3 * silence:
            raise NodeNameTaken(previous.name, found.address)
        if not logged:
            logged = True
            events.emit(waiting_for_node(previous.name, silence))
        await asyncio.sleep(silence / CHECKS_WITHIN_SILENCE)


@dataclass(eq=False)
class NodeHeartbeat:
    """Writes the heartbeat of a node and of its agent's process, in a thread.

    User code that blocks the agent's event loop does not stop it.

    Args:
        every: seconds between two heartbeats.
        on_replaced: called on the event loop when another incarnation of the node has registered.
        ticker: makes the thread.
    """

    shell: ProcessShell
    incarnation: str
    every: float
    on_replaced: Callable[[NodeReplaced], None]
    ticker: Callable[[PeriodicStep], PeriodicThread]

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
        run, outages = self.shell.database.run_short, self.shell.outages
        try:
            run(heartbeat_only, self.shell.node.name, self.incarnation)
            if now >= self._next_process_heartbeat:
                run(heartbeat_process, self.shell.process_id)
                self._next_process_heartbeat = now + PROCESS_HEARTBEAT_INTERVAL
        except DatabaseUnavailable as error:
            outages.lost(error)
            return self._pauses.next()
        except RowLocked:  # no outage: the database has answered
            return self._pauses.next()
        except NodeReplaced as error:
            call_on_loop(self._loop, self.on_replaced, error)
        except Exception as error:  # noqa: BLE001 - the component fails, and is restarted
            call_on_loop(self._loop, self._fail, error)
        else:
            outages.found()
            self._pauses.reset()
        return self.every

    def _fail(self, error: Exception) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)
