"""Beginning a node's life in the table: its name may have one living incarnation only."""

from __future__ import annotations

import asyncio
from typing import Final

from peerd import __version__
from peerd.domain.errors import NodeNameTaken
from peerd.runtime.observability.events import EventBus, NodeRegistered, WaitingForNode
from peerd.store.connection.database import DatabaseThreads
from peerd.store.nodes.nodes import Node, find_node, heartbeat, is_node_alive, register_incarnation
from peerd.store.nodes.processes import end_earlier_processes

CHECKS_WITHIN_SILENCE: Final = 20
"""At a life that may still go on, within the time after which a silent one counts as over."""


class NodeRegistration:
    """Registers a node for one life of its master.

    Args:
        database: where.
        name: the node's name.
        incarnation: this life's; the same when only the agent was replaced.
        silence: seconds without a beat after which another life counts as over.
        address: of the machine, for other nodes.
        zone: where the machine stands.
        events: what happens.
    """

    def __init__(
        self,
        database: DatabaseThreads,
        name: str,
        incarnation: str,
        *,
        silence: float,
        address: str | None,
        zone: str | None,
        events: EventBus,
    ) -> None:
        self._database = database
        self._name = name
        self._incarnation = incarnation
        self._silence = silence
        self._address = address
        self._zone = zone
        self._events = events

    async def register(self) -> Node:
        """Begin this life, or go on with it.

        What earlier lives held is not touched: where only the master was killed, their processes may still be finishing
        it. If they are dead too, it is rescued like that of any other node that has died.

        Raises:
            NodeNameTaken: another life of this name goes on.
        """
        while True:
            node = await self._database.read(find_node, self._name)
            if node is not None and node.incarnation == self._incarnation:
                return await self._database.run(heartbeat, self._name, self._incarnation)
            if node is not None and node.incarnation is not None:
                await self._wait_until_silent(node)
            if await self._try_register(node) is not None:
                break
        return await self._finish_registration()

    async def _wait_until_silent(self, previous: Node) -> None:
        """Wait until an earlier life has been silent for long enough; if it beats, it is alive."""
        now = asyncio.get_running_loop().time
        began = now()
        logged = False
        while await self._database.read(is_node_alive, self._name, self._silence):
            found = await self._database.read(find_node, self._name)
            if found is None or found.incarnation != previous.incarnation:
                return
            if found.checked_at != previous.checked_at or now() - began > 3 * self._silence:
                raise NodeNameTaken(self._name, found.address)
            if not logged:
                logged = True
                self._events.emit(WaitingForNode(node=self._name, seconds=self._silence))
            await asyncio.sleep(self._silence / CHECKS_WITHIN_SILENCE)

    async def _try_register(self, previous: Node | None) -> int | None:
        return await self._database.run(
            register_incarnation,
            self._name,
            self._incarnation,
            replaces=None if previous is None else previous.incarnation,
            address=self._address,
            zone=self._zone,
            version=__version__,
        )

    async def _finish_registration(self) -> Node:
        node = await self._database.run(heartbeat, self._name, self._incarnation)
        await self._database.run(end_earlier_processes, node.id, self._incarnation)
        self._events.emit(NodeRegistered(node=node.name, node_id=node.id))
        return node
