"""The life of `peerd-beanstalkd` after its start: tables, node, gateway and server, until a signal stops it.

It is a node to the tables, with rows in ``nodes`` and ``processes``, and their heartbeats. No other server opens the
file, because its folder is locked. So at a start all earlier processes of the node have ended, and what they had
reserved is released.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from sqlalchemy.engine import Connection

from peerd import __version__
from peerd.config.settings import GatewaySettings
from peerd.gateway.gateway import Gateway
from peerd.gateway.operations import Holder
from peerd.gateway.server import GatewayServer
from peerd.gateway.standalone.database_file import JobFolder, StandaloneDatabase
from peerd.gateway.standalone.start import PROGRAM, Flags
from peerd.runtime.observability.events import ComponentFailed, EventBus
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.store.connection.database import Database
from peerd.store.connection.outages import OutageTracker
from peerd.store.jobs.holding import release_all
from peerd.store.nodes import nodes, processes
from peerd.store.schema.migrate import require_current_schema

ROLE: Final = "gateway"
CAUSE: Final = "it was stopped"
DUTIES_EVERY: Final = 5.0
"""Seconds between two rounds of heartbeats and chores."""
POLL_EVERY: Final = 1.0
"""Seconds between two polls for waiting clients: programs that write the file themselves do not ring."""
DEFAULT_TTR: Final = 60
FINISH_WITHIN: Final = 3.0
"""Seconds that the release of the last reservations may take."""
UNFINISHED_COMMAND: Final = 600.0
"""Seconds for a command that has begun; beanstalkd itself waits without end."""
Maintain = Callable[[Database], None]
"""Keeps the tables healthy; it is called every `DUTIES_EVERY` seconds."""


class OwnNode:
    """The rows of this process."""

    def __init__(self) -> None:
        self._incarnation = nodes.new_incarnation()
        self._process_id = 0

    def register(self, connection: Connection, default_ttr: int) -> Holder:
        """Begin an incarnation, release the reservations of earlier ones, and register the process."""
        earlier = nodes.find_node(connection, PROGRAM)
        node_id = nodes.register_incarnation(
            connection,
            PROGRAM,
            self._incarnation,
            replaces=None if earlier is None else earlier.incarnation,
            version=__version__,
        )
        assert node_id is not None
        release_all(connection, node_id)
        processes.end_earlier_processes(connection, node_id, self._incarnation)
        self._process_id = processes.register_process(
            connection,
            node_id=node_id,
            incarnation=self._incarnation,
            kind=ROLE,
            slot=PROGRAM,
            role=ROLE,
            pid=os.getpid(),
        )
        return Holder(node_id, self._incarnation, self._process_id, default_ttr)

    def heartbeat(self, connection: Connection) -> None:
        """Show other programs that have opened the file that this process runs."""
        nodes.heartbeat_only(connection, PROGRAM, self._incarnation)
        processes.heartbeat_process(connection, self._process_id)

    def deregister(self, connection: Connection) -> None:
        """Record the end of the process and of the incarnation."""
        processes.end_process(connection, self._process_id, CAUSE)
        nodes.deregister_node(connection, PROGRAM, self._incarnation)


class StandaloneServer:
    """Serves beanstalkd's protocol on a SQLite file of its own.

    Args:
        flags: of the command line.
        folder: has the file; the caller closes it afterwards.
        maintain: does the chores of a manager.
        events: what happens.
    """

    def __init__(self, flags: Flags, folder: JobFolder, maintain: Maintain, events: EventBus) -> None:
        self._flags = flags
        self._maintain = maintain
        self._events = events
        self._node = OwnNode()
        self._database = StandaloneDatabase(folder.database, flags, partial(self._report, "log"))

    async def run(self, sockets: Sequence[socket.socket], stop: asyncio.Event, drain: asyncio.Event) -> None:
        """Serve until `stop` is set; once `drain` is set, no job may be put.

        Raises:
            SchemaTooNew: a newer version of peerd has used the file.
            DatabaseUnavailable: the file cannot be used.
        """
        try:
            await self._open(sockets)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one) for one in (self._follow(drain), self._perform_duties(), self._poll())]
                await stop.wait()
                for task in tasks:
                    task.cancel()
            await self._close()
        finally:
            self._database.close()

    async def _open(self, sockets: Sequence[socket.socket]) -> None:
        require_current_schema(self._database)
        holder = self._database.run(self._node.register, DEFAULT_TTR)
        outages = OutageTracker(self._events, asyncio.get_running_loop().time)
        settings = gateway_settings(self._flags)
        self._gateway = Gateway(
            self._database, holder, settings, {}, lambda _: None, self._events, outages, is_alone=True
        )
        self._gateway.poll_every = POLL_EVERY
        self._gateway.start()
        self._server = GatewayServer(self._gateway, self._events)
        self._server.start(sockets)

    async def _close(self) -> None:
        """Close all connections at once, as beanstalkd does; what they have reserved is released.

        What cannot be released in time is released by the next start.
        """
        self._server.stop_accepting(close_listeners=True)
        await self._server.drain(0.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_WITHIN):
                await self._gateway.finish()
        self._gateway.close()
        await asyncio.to_thread(self._database.run, self._node.deregister)

    async def _poll(self) -> None:
        await self._gateway.poll_for_waiters()

    async def _follow(self, drain: asyncio.Event) -> None:
        await drain.wait()
        self._gateway.refuses_puts = True

    async def _perform_duties(self) -> None:
        while True:
            await asyncio.sleep(DUTIES_EVERY)
            try:
                await asyncio.to_thread(self._database.run, self._node.heartbeat)
                await asyncio.to_thread(self._maintain, self._database)
            except Exception as error:  # noqa: BLE001 - it is repeated in the next round
                self._report("duties", error)

    def _report(self, component: str, error: Exception) -> None:
        described = describe_exception(error)
        self._events.emit(ComponentFailed(component=component, error=described, again_in=DUTIES_EVERY))


def gateway_settings(flags: Flags) -> GatewaySettings:
    """The limits of the server, with beanstalkd's protocol alone."""
    return GatewaySettings(
        protocols=("beanstalk",),
        max_job_size=flags.max_job_size,
        max_buffered_total=max(268_435_456, 4 * flags.max_job_size),
        head_timeout=UNFINISHED_COMMAND,
        body_timeout=UNFINISHED_COMMAND,
    )
