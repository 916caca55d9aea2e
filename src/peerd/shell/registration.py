"""A process under its node: its registration, repeated while the database is away, and its heartbeats."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from sqlalchemy.engine import Connection

from peerd.domain.errors import DatabaseUnavailable, NodeNotRunning, RowLocked
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


def register_under_node(database: Database, link: Link, capabilities: ProcessCapabilities) -> tuple[Node, int]:
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
    return node, database.run(register_start, link, node.id, node.incarnation, capabilities)


def register_start(
    connection: Connection,
    link: Link,
    node_id: int,
    incarnation: str,
    capabilities: ProcessCapabilities = NO_CAPABILITIES,
) -> int:
    """Register this start of the process of a slot; returns the process's id."""
    return register_process(
        connection,
        node_id=node_id,
        incarnation=incarnation,
        kind=link.kind,
        slot=link.slot,
        role=link.role,
        pid=link.pid,
        capabilities=capabilities,
    )


async def keep_heartbeat(
    database: Database,
    process_id: int,
    outages: OutageTracker,
    events: EventBus,
    every: float = HEARTBEAT_INTERVAL,
) -> None:
    """Write a heartbeat of a process every so many seconds until cancelled.

    Without them its row would be purged after some days; and what a gateway process holds would be taken from it.
    """
    while True:
        await asyncio.sleep(every)
        try:
            await asyncio.to_thread(database.run_short, heartbeat_process, process_id)
        except DatabaseUnavailable as error:
            outages.lost(error)
        except RowLocked:
            pass  # the next heartbeat is written all the same
        except Exception as error:  # noqa: BLE001 - the next heartbeat is written all the same
            events.emit(ComponentFailed(component="heartbeat", error=describe_exception(error), again_in=every))
        else:
            outages.found()
