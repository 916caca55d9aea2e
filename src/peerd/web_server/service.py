"""The life of a web process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from peerd.runtime.observability.events import EventBus
from peerd.runtime.process import exit_codes
from peerd.runtime.process.link import Link
from peerd.runtime.process.process_context import LIMITS_ACTION, ProcessContext
from peerd.store.connection.database import Database
from peerd.store.connection.outages import OutageTracker
from peerd.store.nodes.processes import end_process, keep_heartbeat, register_this_process_with_retry
from peerd.web_server.recycling import RecycleLimits, WebProcessRecycler
from peerd.web_server.server import ServerOptions, WebServer

END_WITHIN: Final = 3.0
"""Seconds that the app's lifespan has for its end when the grace leaves less."""


class WebService:
    """A process that serves an ASGI app.

    Args:
        app: the ASGI app.
        options: how it is served.
        recycle: when it is replaced.
        database: to register the process; closed at the end.
        events: what happens.
        app_options: the section's table of options, for the app.
        client: for the app, as all of its ``scope["state"]["peerd"]``.
        attach: called with the process before the app's startup; what else is done in it begins there.
    """

    def __init__(
        self,
        app: Any,
        options: ServerOptions,
        recycle: RecycleLimits,
        database: Database,
        events: EventBus,
        app_options: Mapping[str, Any],
        client: Any,
        attach: Callable[[ProcessContext], object],
    ) -> None:
        self._app = app
        self._options = options
        self._recycle = recycle
        self._database = database
        self._events = events
        self._app_options = app_options
        self._client = client
        self._attach = attach

    async def start(self, link: Link) -> Mapping[str, object]:
        """Register the process, start the app, and accept."""
        self._link = link
        self._process = ProcessContext(link, self._events, options=self._app_options, client=self._client)
        self._process.messenger.on(LIMITS_ACTION, lambda _: {"memory": self._recycle.memory, "cpu": self._recycle.cpu})
        self._attach(self._process)
        self._outages = OutageTracker(self._events, asyncio.get_running_loop().time)
        _, self._process_id = await register_this_process_with_retry(self._database, link, self._outages)
        self._server = WebServer(self._app, self._options, {"peerd": self._process}, self._events)
        try:
            await self._server.start(list(link.sockets.values()), link.tainted)
        except BaseException:
            await asyncio.to_thread(self._database.run, end_process, self._process_id, "its app did not start")
            raise
        link.report_in_flight(lambda: self._server.connections.in_flight)
        self._recycler = WebProcessRecycler(self._recycle, link, lambda: self._server.connections.answered)
        return {"process_id": self._process_id}

    async def run(self) -> None:
        """Serve; the end comes by `stop`."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._server.update_date_periodically(), name="date")
            group.create_task(self._recycler.watch(), name="recycling")
            beat = keep_heartbeat(self._database, self._process_id, self._outages, self._events)
            group.create_task(beat, name="beat")

    async def receive(self, message: Mapping[str, object]) -> None:
        """Take what other processes say."""
        if message.get("type") != "ready":
            self._process.messenger.receive(message)

    async def quiet(self) -> None:
        """Accept no more."""
        self._server.stop_accepting(close_listeners=not self._has_siblings)

    async def stop(self, grace: float) -> None:
        """Answer what was asked, let connections and what runs in the background end, then end the app."""
        loop = asyncio.get_running_loop()
        until = loop.time() + grace
        await self._server.drain(grace)
        await self._process.finish(max(0.0, until - loop.time()))
        await self._server.shut_down(max(END_WITHIN, until - loop.time()))
        self._database.close()

    @property
    def _has_siblings(self) -> bool:
        """Whether somebody goes on to accept, or will: not when the node stops, or its master has gone."""
        return not self._link.master_lost and (self._link.is_replaced or self._link.status != exit_codes.OK)
