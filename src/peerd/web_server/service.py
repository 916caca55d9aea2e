"""The service of a web process: registration, the web server, and recycling."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from peerd.config.settings import WebSettings
from peerd.domain.duration import format_duration
from peerd.runtime.metrics.samples import Sample
from peerd.runtime.observability.events import EventBus
from peerd.runtime.process import exit_codes
from peerd.runtime.process.link import Link
from peerd.runtime.process.process_context import LIMITS_ACTION, ProcessContext
from peerd.store.connection.database import Database
from peerd.store.connection.outages import OutageTracker
from peerd.store.nodes.processes import end_process, keep_heartbeat, register_this_process_with_retry
from peerd.web_server.node_access import NODE_ACCESS_STATE, NodeAccess
from peerd.web_server.ring_subscriptions import RINGS_STATE, RingSubscriptions
from peerd.web_server.server import WebServer

END_WITHIN: Final = 3.0
"""Seconds that the app's shutdown has when less of the grace is left."""
ASK_AGAIN_AFTER: Final = 30.0
"""Seconds until a process that is to be recycled asks again for its replacement, which may have failed to boot."""
CHECK_EVERY: Final = 1.0
SPREAD: Final = 0.1
"""Share of `recycle_after` and `recycle_age` by which processes differ, so that they are not recycled together."""


class WebService:
    """A process that serves an ASGI app.

    Args:
        app: the ASGI app.
        settings: its section.
        database: to register the process; closed at the end.
        events: what happens.
        client: the app's client, in `scope["state"]["peerd"]`.
        attach: called with the process context before the app's startup, for what else runs in the process.
        access: for the app, in `scope["state"]`.
        run_directory: of the node.
    """

    def __init__(
        self,
        app: Any,
        settings: WebSettings,
        database: Database,
        events: EventBus,
        client: Any,
        attach: Callable[[ProcessContext], object],
        access: NodeAccess,
        run_directory: Path,
    ) -> None:
        self._app = app
        self._settings = settings
        self._database = database
        self._events = events
        self._client = client
        self._attach = attach
        self._access = access
        self._run_directory = run_directory

    async def start(self, link: Link) -> Mapping[str, object]:
        settings = self._settings
        resource_limits = {"memory": settings.recycle_memory, "cpu": settings.recycle_cpu}  # the agent enforces them
        self._link = link
        self._process = ProcessContext(link, self._events, options=settings.options, client=self._client)
        self._process.messenger.on(LIMITS_ACTION, lambda _: resource_limits)
        self._attach(self._process)
        self._outages = OutageTracker(self._events, asyncio.get_running_loop().time)
        _, self._process_id = await register_this_process_with_retry(self._database, link, self._outages)
        rings = RingSubscriptions(self._process, self._run_directory)
        state = {"peerd": self._process, NODE_ACCESS_STATE: self._access, RINGS_STATE: rings}
        self._server = WebServer(self._app, settings, state, self._events)
        self._count_requests(link.kind)
        try:
            await self._server.start(list(link.sockets.values()), link.tainted)
        except BaseException:
            await asyncio.to_thread(self._database.run, end_process, self._process_id, "its app did not start")
            raise
        link.report_in_flight(lambda: self._server.connections.in_flight)
        return {"process_id": self._process_id}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._server.update_date_periodically(), name="date")
            group.create_task(self._request_recycling(), name="recycling")
            heartbeat = keep_heartbeat(self._database, self._process_id, self._outages, self._events)
            group.create_task(heartbeat, name="heartbeat")

    async def receive(self, message: Mapping[str, object]) -> None:
        """Handle a message of another process."""
        if message.get("type") != "ready":
            self._process.messenger.receive(message)

    async def quiet(self) -> None:
        """Stop accepting; the listeners are closed when no other process accepts on them.

        None does when the node stops, or its master is lost.
        """
        self._process.draining.set()
        is_replaced = self._link.is_replaced or self._link.status != exit_codes.OK
        self._server.stop_accepting(close_listeners=self._link.master_lost or not is_replaced)

    async def stop(self, grace: float) -> None:
        """Drain the server, wait for background work, then shut the app down."""
        loop = asyncio.get_running_loop()
        until = loop.time() + grace
        await self._server.drain(grace)
        await self._process.finish(max(0.0, until - loop.time()))
        await self._server.shut_down(max(END_WITHIN, until - loop.time()))
        self._database.close()

    def _count_requests(self, kind: str) -> None:
        metrics, connections = self._process.metrics, self._server.connections
        metrics.add_source(lambda: [Sample("peerd_web_requests_in_flight", (kind,), connections.in_flight)])
        connections.observe = lambda status, seconds: metrics.observe(
            "peerd_web_request_seconds", seconds, kind, f"{status // 100}xx"
        )

    async def _request_recycling(self) -> None:
        """When the process has answered enough requests or is old enough, ask for its replacement until it is there.

        It serves meanwhile: if all processes stopped serving first, requests would wait for as long as a boot takes.
        """
        now, connections = asyncio.get_running_loop().time, self._server.connections
        after, age, started_at = self._settings.recycle_after, self._settings.recycle_age, now()
        spread = random.uniform(1 - SPREAD, 1 + SPREAD)
        while True:
            reason = None
            if after is not None and connections.answered >= max(1, round(after * spread)):
                reason = f"it has answered {connections.answered} requests (recycle_after)"
            elif age is not None and now() - started_at >= age * spread:
                reason = f"it is {format_duration(round(now() - started_at))} old (recycle_age)"
            if reason is not None:
                self._link.request_replacement(reason)
            await asyncio.sleep(CHECK_EVERY if reason is None else ASK_AGAIN_AFTER)
