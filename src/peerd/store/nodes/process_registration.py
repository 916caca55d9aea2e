"""The registration of a process under its node, from the process itself."""

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
"""Seconds between two heartbeats of a process that touches no tasks."""


def register_this_process(
    database: Database, link: Link, capabilities: ProcessCapabilities = NO_CAPABILITIES
) -> tuple[Node, int]:
    """Register this process under its node; returns the node and the process's id.

    Raises:
        NodeNotRunning: the node's agent has not registered it.
        SchemaMissing: the tables are missing or too old.
        DatabaseUnavailable: the database does not answer.
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


async def retry_if_replacement(register: Callable[[], Awaitable[T]], link: Link, outages: OutageTracker) -> T:
    """Register; a process that replaces another one repeats it while the database is away.

    The node is up, and gets its process as soon as the database is back; the master is informed of the wait. The first
    process of a slot fails instead, so that the start of a node reports the cause.
    """

    async def attempt() -> T:
        try:
            return await register()
        except DatabaseUnavailable as error:
            link.report_still_booting(str(error))
            raise

    return await (outages.retry_while_down(attempt) if link.is_replacement else register())


async def register_this_process_with_retry(
    database: Database, link: Link, outages: OutageTracker, capabilities: ProcessCapabilities = NO_CAPABILITIES
) -> tuple[Node, int]:
    """`register_this_process` in a thread, with `retry_if_replacement`."""
    return await retry_if_replacement(
        lambda: asyncio.to_thread(register_this_process, database, link, capabilities), link, outages
    )


async def keep_heartbeat(database: Database, process_id: int, outages: OutageTracker, events: EventBus) -> None:
    """Write heartbeats of a process until cancelled; without them its row would be purged after some days."""
    while True:
        await asyncio.sleep(HEARTBEAT_INTERVAL)
        try:
            await asyncio.to_thread(database.run_idempotent, heartbeat_process, process_id)
        except DatabaseUnavailable as error:
            outages.lost(error)
        except Exception as error:  # noqa: BLE001 - the next heartbeat is written all the same
            events.emit(ComponentFailed(component="beat", error=describe_exception(error), again_in=HEARTBEAT_INTERVAL))
        else:
            outages.found()
