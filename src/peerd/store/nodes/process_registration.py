"""A process enters the table: below its node, with an identity of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from peerd.domain.errors import DatabaseUnavailable, NodeNotRunning
from peerd.runtime.observability.events import ComponentFailed, EventBus
from peerd.runtime.process.link import Link
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.store.connection.database import Database
from peerd.store.connection.outages import OutageTracker
from peerd.store.nodes.nodes import Node, find_node
from peerd.store.nodes.processes import NO_CAPABILITIES, ProcessCapabilities, heartbeat_process, register_process
from peerd.store.schema.migrate import require_current_schema

T = TypeVar("T")

HEARTBEAT_INTERVAL: Final = 10.0
"""Seconds between two beats of a process that touches no tasks."""


def register_this_process(
    database: Database, link: Link, capabilities: ProcessCapabilities = NO_CAPABILITIES
) -> tuple[Node, int]:
    """Register this process below its node, which its agent has registered.

    Args:
        database: where; not inside a transaction.
        link: who the process is.
        capabilities: what tasks it takes.

    Returns:
        the node, and the process's identity.

    Raises:
        NodeNotRunning: the agent has not.
        SchemaMissing: the tables are not as this version needs them.
        DatabaseUnavailable: it does not answer.
    """
    require_current_schema(database)
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
        capabilities=capabilities,
    )
    return node, process_id


async def retry_if_replacement(enter: Callable[[], Awaitable[T]], link: Link, outages: OutageTracker) -> T:
    """Enter, even if the database is away at the moment.

    A replacement waits for it: the node is up, and is to be whole again as soon as the database is back. The first
    process of a slot fails, so that the start of a node says what is wrong with it.

    Args:
        enter: it may be called again after a `DatabaseUnavailable`.
        link: who the process is; its master is told that it waits.
        outages: what is learned about the database.
    """

    async def attempt() -> T:
        try:
            return await enter()
        except DatabaseUnavailable as error:
            link.report_still_booting(str(error))
            raise

    return await (outages.retry_while_down(attempt) if link.is_replacement else enter())


async def register_this_process_with_retry(
    database: Database, link: Link, outages: OutageTracker, capabilities: ProcessCapabilities = NO_CAPABILITIES
) -> tuple[Node, int]:
    """`register_this_process`, from an event loop, `retry_if_replacement`."""
    return await retry_if_replacement(
        lambda: asyncio.to_thread(register_this_process, database, link, capabilities), link, outages
    )


async def keep_heartbeat(database: Database, process_id: int, outages: OutageTracker, events: EventBus) -> None:
    """Say again and again, for ever, that a process goes on: a record that is silent for days is purged.

    Args:
        database: where.
        process_id: which.
        outages: what is learned about the database.
        events: what goes wrong otherwise; the next beat comes all the same.
    """
    while True:
        await asyncio.sleep(HEARTBEAT_INTERVAL)
        try:
            await asyncio.to_thread(database.run_idempotent, heartbeat_process, process_id)
        except DatabaseUnavailable as error:
            outages.lost(error)
        except Exception as error:  # noqa: BLE001 - a process must not end because its beat failed once
            events.emit(ComponentFailed(component="beat", error=describe_exception(error), again_in=HEARTBEAT_INTERVAL))
        else:
            outages.found()
