"""The service of a web process: the web server, how it ends, and its recycling."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from peerd.config.settings import WebSettings
from peerd.runtime.metrics.registry import Sample
from peerd.runtime.process import exit_codes
from peerd.shell import ProcessShell, RecyclingCondition, Service, spread_factor
from peerd.web_server.app_state import NODE_ACCESS_STATE, RINGS_STATE, NodeAccess, RingSubscriptions
from peerd.web_server.server import WebServer

END_WITHIN: Final = 3.0
"""Seconds that the app's shutdown has when less of the grace is left."""
ASK_AGAIN_AFTER: Final = 30.0
"""Seconds until a process that is to be recycled asks again for its replacement, which may have failed to boot."""


class WebService(Service):
    """A process that serves an ASGI app.

    Args:
        app: the ASGI app.
        settings: its section.
        access: for the app, in `scope["state"]`.
        run_directory: of the node.
    """

    def __init__(self, app: Any, settings: WebSettings, access: NodeAccess, run_directory: Path) -> None:
        self._app = app
        self._settings = settings
        self._access = access
        self._run_directory = run_directory
        self.options = settings.options
        self.limits = {"memory": settings.recycle_memory, "cpu": settings.recycle_cpu}

    async def start(self, shell: ProcessShell) -> None:
        """Start the app, and accept connections. The app finds its process in `scope["state"]["peerd"]`."""
        self._shell = shell
        link, process = shell.link, shell.process
        rings = RingSubscriptions(process, self._run_directory)
        state = {"peerd": process, NODE_ACCESS_STATE: self._access, RINGS_STATE: rings}
        self._server = WebServer(self._app, self._settings, state, shell.events)
        self._count_requests(link.kind)
        await self._server.start(list(link.sockets.values()), link.tainted)
        link.report_in_flight(lambda: self._server.connections.in_flight)

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._server.update_date_periodically(), name="date")
            group.create_task(self._request_recycling(), name="recycling")

    async def drain(self, grace: float) -> None:
        """Stop accepting, and let the requests end.

        The listeners are closed when no other process accepts on them: none does when the node stops, or its master is
        lost.
        """
        link = self._shell.link
        is_replaced = link.is_replaced or link.status != exit_codes.OK
        self._server.stop_accepting(close_listeners=link.master_lost or not is_replaced)
        await self._server.drain(grace)

    async def close(self, grace: float) -> None:
        """Shut the app down."""
        await self._server.shut_down(max(END_WITHIN, grace))

    def _count_requests(self, kind: str) -> None:
        metrics, connections = self._shell.process.metrics, self._server.connections
        metrics.add_source(lambda: [Sample("peerd_web_requests_in_flight", (kind,), connections.in_flight)])
        connections.observe = lambda status, seconds: metrics.observe(
            "peerd_web_request_seconds", seconds, kind, f"{status // 100}xx"
        )

    async def _request_recycling(self) -> None:
        """When the process has answered enough requests or is old enough, ask for its replacement until it is there.

        It serves meanwhile: if all processes stopped serving first, requests would wait for as long as a boot takes.
        Their numbers of requests differ as their ages do, because they share the requests evenly.
        """
        after = self._settings.recycle_after
        condition = RecyclingCondition(
            None if after is None else max(1, round(after * spread_factor())),
            self._settings.recycle_age,
            lambda: self._server.connections.answered,
            lambda answered: f"it has answered {answered} requests (recycle_after)",
        )
        while True:
            self._shell.link.request_replacement(await condition.wait())
            await asyncio.sleep(ASK_AGAIN_AFTER)
