"""The shell of a process: what every process of a node does, round the service that makes its kind.

    entry point ─ makes ─→ ProcessShell ─ leads ─→ Service

A service runs tasks or a periodic worker, serves web or queue clients, or is the manager or the agent. The shell
registers the process, writes its heartbeats, sends its alerts, reports its errors, answers with its limits, takes its
messages, says when it is to be recycled, and ends it in order.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy.engine import Connection

from peerd.domain.errors import DatabaseUnavailable, NodeNotRunning, RowLocked
from peerd.domain.units import format_duration
from peerd.runtime.concurrency import call_on_loop
from peerd.runtime.observability.alert_detection import AlertEventListener
from peerd.runtime.observability.error_reporting import ErrorHook, ErrorKind, ErrorReporter
from peerd.runtime.observability.events import ComponentFailed, EventBus
from peerd.runtime.process.link import Link
from peerd.runtime.process.process_context import LIMITS_ACTION, ProcessContext
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.store import processes
from peerd.store.connection.database import Database
from peerd.store.connection.outages import OutageTracker
from peerd.store.nodes import Node, find_node
from peerd.store.processes import ProcessCapabilities
from peerd.store.schema.migrate import require_current_schema

T = TypeVar("T")

CHECK_EVERY: Final = 1.0
"""Seconds between two looks whether a process is to be recycled."""
SPREAD: Final = 0.1
"""Share by which the ages of processes differ, so that those that were started together are not recycled together."""
RECORD_END_WITHIN: Final = 3.0
"""Seconds that the record of a failed start may take."""
HEARTBEAT_INTERVAL: Final = 10.0
"""Seconds between two heartbeats of a process that touches no tasks."""


class Service:
    """What the processes of one kind do. Each object is used once.

    The order is start → run, with `receive` for each frame of the master, → drain → close. `run` continues during
    `drain` and `close`, and is cancelled after them. After a second request to stop, `drain` and `close` are cancelled
    and called again, with no grace.

    Attributes:
        capabilities: the queues and handlers that the process serves.
        heartbeat_every: seconds between two heartbeats of the process; None: the service writes them.
        limits: bytes of `memory` and processors of `cpu`, above which the agent has the process replaced.
        options: for user code, as `process.options`.
    """

    capabilities: ProcessCapabilities = processes.NO_CAPABILITIES
    heartbeat_every: float | None = HEARTBEAT_INTERVAL
    limits: Mapping[str, float | None] = {}
    options: Mapping[str, Any] = {}

    async def register(self, shell: ProcessShell) -> tuple[Node, int]:
        """Register the process; returns its node, and its id. The agent registers the node as well."""

        def register() -> Awaitable[tuple[Node, int]]:
            return asyncio.to_thread(register_under_node, shell.database, shell.link, self.capabilities)

        return await retry_if_replacement(register, shell.link, shell.outages)

    async def start(self, shell: ProcessShell) -> None:
        """Become ready; an exception is a failed boot."""
        raise NotImplementedError

    async def run(self) -> None:
        """Do the work. Returning ends the process for good, raising is a crash."""
        raise NotImplementedError

    async def receive(self, message: Mapping[str, Any]) -> None:
        """Handle a frame of the master, after the shell has handled it."""

    async def drain(self, grace: float) -> None:
        """Take no new work, and finish what runs within `grace` seconds."""
        raise NotImplementedError

    async def close(self, grace: float) -> None:
        """Give back what the process holds, within the `grace` seconds that are left and a few more."""


class ProcessShell:
    """A process of a node, as a `SupervisedProcess`. Its service uses the attributes.

    Args:
        service: what the process does.
        database: closed at the end.
        events: what happens in the process.
        client: a `Client` on the database, for user code.
        error_hook: gets the errors of the process.
        attach: called with the process before it is registered, for what else runs in it.

    Attributes:
        node: where the process is registered, as `process_id`.
    """

    link: Link
    process: ProcessContext
    outages: OutageTracker
    node: Node
    process_id: int

    def __init__(
        self,
        service: Service,
        database: Database,
        events: EventBus,
        *,
        client: Any = None,
        error_hook: ErrorHook | None = None,
        attach: Callable[[ProcessContext], object] = lambda _: None,
    ) -> None:
        self.service = service
        self.database = database
        self.events = events
        self.client = client
        self.node_is_ready = asyncio.Event()
        """Set when all processes of the node are ready."""
        self._error_hook = error_hook
        self._error_reporter: ErrorReporter | None = None
        self._attach = attach

    async def start(self, link: Link) -> Mapping[str, object]:
        """Register the process, and start its service."""
        self.link = link
        self._now = asyncio.get_running_loop().time
        self._send_alerts()
        self._report_errors()
        self.outages = OutageTracker(self.events, self._now)
        self.process = ProcessContext(link, self.events, options=self.service.options, client=self.client)
        self.process.messenger.on(LIMITS_ACTION, lambda _: self.service.limits)
        self._attach(self.process)
        self.node, self.process_id = await self.service.register(self)
        try:
            await self.service.start(self)
        except BaseException:
            await self._record_failed_start()
            raise
        return {"process_id": self.process_id, "node_id": self.node.id}

    async def run(self) -> None:
        """Run the service, and write the heartbeats of the process meanwhile."""
        heartbeat = asyncio.create_task(self._beat(), name="heartbeat")
        heartbeat.add_done_callback(self._taint_without_heartbeat)
        try:
            await self.service.run()
        except Exception as error:
            await self._report_end(error)
            raise
        finally:
            heartbeat.cancel()
            await asyncio.wait([heartbeat])

    async def receive(self, message: Mapping[str, Any]) -> None:
        """Handle a frame of the master: the node is ready, a message of another process, or one for the service."""
        if message.get("type") == "ready":
            self.node_is_ready.set()
        self.process.messenger.receive(message)
        await self.service.receive(message)

    async def stop(self, grace: float) -> None:
        """Let what runs end within its grace, then give back what the process holds, and send its last reports."""
        try:
            await self._end_service(self._now() + grace)
        except Exception as error:
            await self._report_end(error)
            raise
        if self._error_reporter is not None:
            await asyncio.to_thread(self._error_reporter.finish)
        self._alerts.flush_suppressed()

    async def _end_service(self, until: float) -> None:
        self.process.draining.set()
        await self.service.drain(self._left(until))
        await self.process.finish(self._left(until))
        await self.service.close(self._left(until))
        self.database.close()

    def _left(self, until: float) -> float:
        return max(0.0, until - self._now())

    async def _beat(self) -> None:
        every = self.service.heartbeat_every
        if every is not None:
            await keep_heartbeat(self.database, self.process_id, self.outages, self.events, every)

    def _taint_without_heartbeat(self, heartbeat: asyncio.Task[None]) -> None:
        if not heartbeat.cancelled() and (error := heartbeat.exception()) is not None:
            self.link.tainted(f"its heartbeat has ended: {describe_exception(error)}")

    async def _record_failed_start(self) -> None:
        """Record the end of the process: without it the row says that it lives until the agent learns of its death."""
        with suppress(TimeoutError, DatabaseUnavailable):
            async with asyncio.timeout(RECORD_END_WITHIN):
                await asyncio.to_thread(self.database.run, processes.end_process, self.process_id, "it did not start")

    # ---------------------------------------------------------------- alerts and errors

    def _send_alerts(self) -> None:
        """Send the alerts among the events of the process."""
        loop = asyncio.get_running_loop()
        later = partial(call_on_loop, loop, loop.call_later)
        self._alerts = AlertEventListener(self.link.alert, loop.time, later)
        self.events.listen(self._alerts, debug=False)

    def _report_errors(self) -> None:
        """Report the errors among the events of the process, and its uncaught exceptions, to the user's hook.

        The agent reports that a process does not boot.
        """
        if self._error_hook is not None:
            link = self.link
            self._error_reporter = ErrorReporter(self._error_hook, self.events, node=link.node, slot=link.slot)
            self.events.listen_with_exceptions(self._error_reporter)
            link.on_uncaught = partial(self._error_reporter.report_exception, ErrorKind.UNCAUGHT)

    async def _report_end(self, error: Exception) -> None:
        """Report the exception that ends the process, and wait a moment for the hook."""
        if self._error_reporter is not None:
            self._error_reporter.report_exception(ErrorKind.PROCESS, self.link.slot, error)
            await asyncio.to_thread(self._error_reporter.finish)


def spread_factor() -> float:
    """A factor by which this process differs from others.

    >>> 0.9 <= spread_factor() <= 1.1
    True
    """
    return random.uniform(1 - SPREAD, 1 + SPREAD)


async def reasons_to_recycle(
    after: int | None, age: float | None, count: Callable[[], int], describe: Callable[[int], str]
) -> AsyncIterator[str]:
    """Say why, as soon as a process has done enough, or is old enough, to be replaced by a fresh one; again if asked.

    A process that uses too much memory or processor time is replaced by the agent, and has its grace and no more.

    Args:
        after: units of work; None: any number.
        age: seconds, which are spread; None: any age.
        count: gives the units that it has done.
        describe: words their number, as the reason.
    """
    now = asyncio.get_running_loop().time
    started_at, max_age = now(), math.inf if age is None else age * spread_factor()
    while True:
        done, seconds = count(), now() - started_at
        if after is not None and done >= after:
            yield describe(done)
        elif seconds >= max_age:
            yield f"it is {format_duration(round(seconds))} old (recycle_age)"
        else:
            await asyncio.sleep(CHECK_EVERY)


# ---------------------------------------------------------------- registration and heartbeat


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
    capabilities: ProcessCapabilities = processes.NO_CAPABILITIES,
) -> int:
    """Register this start of the process of a slot; returns the process's id."""
    return processes.register_process(
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
            await asyncio.to_thread(database.run_short, processes.heartbeat_process, process_id)
        except DatabaseUnavailable as error:
            outages.lost(error)
        except RowLocked:
            pass  # the next heartbeat is written all the same
        except Exception as error:  # noqa: BLE001 - the next heartbeat is written all the same
            events.emit(ComponentFailed(component="heartbeat", error=describe_exception(error), again_in=every))
        else:
            outages.found()
