"""Registration of a node in the table: at most one living incarnation may have its name."""

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
"""How often an earlier incarnation is read until its silence counts as its end."""


async def register_node(
    database: DatabaseThreads,
    name: str,
    incarnation: str,
    *,
    silence: float,
    address: str | None,
    zone: str | None,
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
            address=address,
            zone=zone,
            version=__version__,
        )
        if registered is not None:
            break
    node = await database.run(heartbeat, name, incarnation)
    await database.run(end_earlier_processes, node.id, incarnation)
    events.emit(NodeRegistered(node=name, node_id=node.id))
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
            events.emit(WaitingForNode(node=previous.name, seconds=silence))
        await asyncio.sleep(silence / CHECKS_WITHIN_SILENCE)
