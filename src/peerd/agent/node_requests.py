"""Takes the requests to this node from the table, and has them carried out.

A ring or a check of the stager wakes it; either costs one look at the table and nothing else, so a forged ring can do
no harm. A request is taken by a compare-and-set and carried out at most once. Of a former agent of the same incarnation
those requests are continued that wait for the end of a reload or of scaling; all others are failed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from peerd.agent.components import ComponentSupervisor, Subsystem
from peerd.agent.request_execution import NodeRequestRefused, RequestExecutor
from peerd.domain.errors import DatabaseUnavailable, PeerdError
from peerd.domain.node_request import MAX_RESULT_BYTES, decode_command
from peerd.domain.pacing import Backoff, TokenBucket
from peerd.runtime.observability.log_messages import node_request_ended
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.shell.process_shell import ProcessShell
from peerd.store.connection.database import DatabaseThreads
from peerd.store.nodes import requests as stored
from peerd.store.nodes.requests import NodeRequest

COMPONENT: Final = "node requests"
FRUITLESS_LOOKS: Final = (20, 5.0)
"""Looks that may find nothing, at once and in a second: a ring need not be true."""
MAX_RUNNING: Final = 8
"""Requests that are carried out at the same time; the others wait in the table."""


@dataclass(eq=False)
class NodeRequestReceiver(Subsystem):
    """The requests to a node, in its agent."""

    incarnation: str
    executor: Callable[[ProcessShell], RequestExecutor]
    """Makes what carries out requests."""

    def __post_init__(self) -> None:
        self._wake_event = asyncio.Event()
        self._running: dict[int, asyncio.Task[None]] = {}
        self._fruitless_looks = TokenBucket(*FRUITLESS_LOOKS)
        self._components: ComponentSupervisor | None = None

    async def start(self, shell: ProcessShell, components: ComponentSupervisor) -> None:
        """Start looking for requests."""
        self._threads = DatabaseThreads(shell.database, threads=1)
        self._events = shell.events
        self._executor = self.executor(shell)
        self._components = components
        components.start(COMPONENT, self._run)

    async def stop(self, grace: float) -> None:
        """Stop. What waits for the end of a reload stays running: the next agent continues it."""
        if self._components is not None:
            await self._components.stop([COMPONENT], within=1.0)
        for task in list(self._running.values()):
            task.cancel()
        if self._running:
            await asyncio.wait(self._running.values(), timeout=1.0)

    def wake(self) -> None:
        """A request waits, or may; on the agent's event loop."""
        self._wake_event.set()

    async def _run(self) -> None:
        pauses = Backoff(first=0.5)
        may_be_interrupted = True  # by the end of an agent before this one, or by a lost reply
        while True:
            self._wake_event.clear()
            try:
                if may_be_interrupted:
                    await self._continue_interrupted()
                    may_be_interrupted = False
                await self._look()
                pauses.reset()
            except DatabaseUnavailable:  # the heartbeat reports it
                may_be_interrupted = True
                await asyncio.sleep(pauses.next())
                continue
            await self._wake_event.wait()
            await asyncio.sleep(self._fruitless_looks.take(time.monotonic()))

    async def _continue_interrupted(self) -> None:
        """Continue or fail what was taken and is not being carried out."""
        running = await self._threads.read(stored.list_running_requests, self.incarnation)
        unknown = [request for request in running if request.id not in self._running]
        await self._threads.run(stored.fail_interrupted, [request.id for request in unknown if request.result is None])
        for request in unknown:
            if request.result is not None:
                self._begin(request)

    async def _look(self) -> None:
        if len(self._running) >= MAX_RUNNING:
            return  # the end of one looks again
        taken = await self._threads.run(stored.take_requests, self.incarnation, MAX_RUNNING - len(self._running))
        if taken:
            self._fruitless_looks.fill()
        for request in taken:
            self._begin(request)

    def _begin(self, request: NodeRequest) -> None:
        task = asyncio.get_running_loop().create_task(self._carry_out(request), name=f"request-{request.id}")
        self._running[request.id] = task
        task.add_done_callback(lambda _: self._on_ended(request.id))

    def _on_ended(self, request_id: int) -> None:
        del self._running[request_id]
        self.wake()

    async def _carry_out(self, request: NodeRequest) -> None:
        result: str | None = None
        error: str | None = None
        try:
            command = decode_command(request.arguments)

            async def report(progress: str) -> None:
                await self._write(stored.record_progress, request.id, progress)

            result = await self._executor.execute(command, request.result, report)
            if len(result) > MAX_RESULT_BYTES:
                error = f"its answer has {len(result)} bytes, and {MAX_RESULT_BYTES} are allowed"
        except (NodeRequestRefused, PeerdError, ValueError, OSError) as refused:
            error = str(refused)
        except Exception as failed:  # noqa: BLE001 - the requester learns of it, and the agent goes on
            error = describe_exception(failed)
        await self._write(stored.finish_request, request.id, result=result if error is None else None, error=error)
        self._events.emit(node_request_ended(request.id, request.command, request.requested_by, error))

    async def _write(self, operation: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Write to the row, however long the database is away."""
        pauses = Backoff(first=0.5)
        while True:
            try:
                await self._threads.run(operation, *args, **kwargs)
            except DatabaseUnavailable:
                await asyncio.sleep(pauses.next())
            else:
                return
