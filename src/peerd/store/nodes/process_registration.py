"""A process enters the table: below its node, with an identity of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from peerd.domain.errors import DatabaseAway, NodeNotRunning
from peerd.runtime.observability.events import ComponentFailed, Events
from peerd.runtime.process.link import Link
from peerd.runtime.process.uncaught_exceptions import words
from peerd.store.connection.database import Database
from peerd.store.connection.outages import Outages
from peerd.store.nodes.nodes import Node, find_node
from peerd.store.nodes.processes import NOTHING, Served, beat_process, register_process
from peerd.store.schema.migrate import require_newest

T = TypeVar("T")

BEAT_EVERY: Final = 10.0
"""Seconds between two beats of a process that touches no tasks."""


def enter(database: Database, link: Link, served: Served = NOTHING) -> tuple[Node, int]:
    """Register this process below its node, which its agent has registered.

    Args:
        database: where; not inside a transaction.
        link: who the process is.
        served: what tasks it takes.

    Returns:
        the node, and the process's identity.

    Raises:
        NodeNotRunning: the agent has not.
        SchemaMissing: the tables are not as this version needs them.
        DatabaseAway: it does not answer.
    """
    require_newest(database)
    node = database.read(find_node, link.node)
    if node is None or node.incarnation is None:
        raise NodeNotRunning(link.node)
    process_id = database.run(
        register_process,
        node_id=node.id,
        incarnation=node.incarnation,
        kind=link.kind,
        slot=link.slot,
        role=link.role,
        pid=link.pid,
        served=served,
    )
    return node, process_id


async def patiently(enter: Callable[[], Awaitable[T]], link: Link, outages: Outages) -> T:
    """Enter, even if the database is away at the moment.

    A replacement waits for it: the node is up, and is to be whole again as soon as the database is back. The first
    process of a slot fails, so that the start of a node says what is wrong with it.

    Args:
        enter: it may be called again after a `DatabaseAway`.
        link: who the process is; its master is told that it waits.
        outages: what is learned about the database.
    """

    async def attempt() -> T:
        try:
            return await enter()
        except DatabaseAway as error:
            link.still_booting(str(error))
            raise

    return await (outages.outlast(attempt) if link.is_replacement else enter())


async def enter_patiently(
    database: Database, link: Link, outages: Outages, served: Served = NOTHING
) -> tuple[Node, int]:
    """`enter`, from an event loop, `patiently`."""
    return await patiently(lambda: asyncio.to_thread(enter, database, link, served), link, outages)


async def keep_fresh(database: Database, process_id: int, outages: Outages, events: Events) -> None:
    """Say again and again, for ever, that a process goes on: a record that is silent for days is purged.

    Args:
        database: where.
        process_id: which.
        outages: what is learned about the database.
        events: what goes wrong otherwise; the next beat comes all the same.
    """
    while True:
        await asyncio.sleep(BEAT_EVERY)
        try:
            await asyncio.to_thread(database.run_repeatable, beat_process, process_id)
        except DatabaseAway as error:
            outages.lost(error)
        except Exception as error:  # noqa: BLE001 - a process must not end because its beat failed once
            events.emit(ComponentFailed(component="beat", error=words(error), again_in=BEAT_EVERY))
        else:
            outages.found()
