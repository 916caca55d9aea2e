"""The services that a node's processes live: one that runs tasks, one that runs a periodic worker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from peerd.domain.stuck_attempt import StuckAttempt
from peerd.runtime.concurrency.periodic_thread import PeriodicCaller, PeriodicStep, PeriodicThread
from peerd.runtime.observability.events import EventBus
from peerd.runtime.process.link import Link
from peerd.runtime.process.process_context import LIMITS_ACTION, ProcessContext
from peerd.store.claim.claimer import Claimer
from peerd.store.connection.database import Database
from peerd.store.connection.outages import OutageTracker
from peerd.store.nodes.known_handlers import encode_handlers
from peerd.store.nodes.processes import (
    ProcessCapabilities,
    end_process,
    keep_heartbeat,
    register_this_process_with_retry,
)
from peerd.work.claims.wake_ups import WakeUpReceiver
from peerd.work.recycler import WorkerRecycler, resource_limits_of
from peerd.work.task_runner import Runner
from peerd.work.task_worker import TaskWorker
from peerd.work.worker import Worker

SharedFactory = Callable[[], Callable[..., Any]]


Attach = Callable[[ProcessContext], object]


def attach_nothing(process: ProcessContext) -> None:
    """Do nothing else in a process than its worker does."""


class TaskService:
    """A process that runs tasks.

    Args:
        worker: the user's code, with its settings.
        database: of this process; closed at the end.
        events: what happens.
        enqueue: for ``ctx.enqueue``.
        client: for ``ctx.client``.
        ticker: makes the thread that touches what is held.
        shared: makes what is behind ``ctx.shared``, on the event loop.
        attach: called with the process before the worker's setup; what else is done in it begins there.
    """

    def __init__(
        self,
        worker: TaskWorker,
        database: Database,
        events: EventBus,
        enqueue: Callable[..., Awaitable[Any]] | None = None,
        client: Any = None,
        ticker: Callable[[PeriodicStep], PeriodicCaller] = PeriodicThread,
        shared: SharedFactory | None = None,
        attach: Attach = attach_nothing,
    ) -> None:
        self._worker = worker
        self._database = database
        self._events = events
        self._enqueue = enqueue
        self._client = client
        self._ticker = ticker
        self._shared = shared
        self._attach = attach
        self._node_is_ready = asyncio.Event()
        self._leaving = False

    async def start(self, link: Link) -> Mapping[str, object]:
        """Register the process, and set the user's worker up."""
        self._now = asyncio.get_running_loop().time
        self._link = link
        outages = OutageTracker(self._events, self._now)
        self._process = ProcessContext(link, self._events, options=self._worker.settings.options, client=self._client)
        self._process.find_shared = self._shared() if self._shared else None
        self._process.messenger.on(LIMITS_ACTION, lambda _: resource_limits_of(self._worker.settings))
        self._worker.set_process(self._process)
        self._attach(self._process)
        capabilities = ProcessCapabilities(self._worker.settings.queues, encode_handlers(self._worker.knowledge()))
        node, process_id = await register_this_process_with_retry(self._database, link, outages, capabilities)
        try:
            await self._worker.setup()
        except BaseException:
            await asyncio.to_thread(self._database.run, end_process, process_id, "its setup failed")
            raise
        claimer = Claimer(
            node_id=node.id,
            incarnation=node.incarnation or "",
            process_id=process_id,
            queues=self._worker.settings.queues,
            default_attempts=self._worker.settings.max_attempts,
            attempts_of=self._worker.attempts_by_handler(),
        )
        may_lag = await asyncio.to_thread(self._database.may_lag)
        self._wake_ups = wake_ups = WakeUpReceiver(self._process, self._worker.settings, may_lag=may_lag)
        self._runner = Runner(
            self._worker,
            self._database,
            claimer,
            node=link.node,
            events=self._events,
            enqueue=self._enqueue,
            client=self._client,
            ticker=self._ticker,
        )
        self._runner.stuck = self._replace_process
        self._runner.poll_every = wake_ups.poll_every
        wake_ups.set_target(self._runner)
        if link.run_directory is not None:
            wake_ups.listen(link.run_directory)
        link.report_in_flight(lambda: self._runner.in_flight)
        self._recycler = WorkerRecycler(
            self._worker.settings,
            link,
            ended=lambda: self._runner.ended_count,
            quiet=self._runner.quiet,
            is_drained=lambda: self._runner.is_drained and not self._process.scheduled_runs,
        )
        return {"process_id": process_id}

    async def run(self) -> None:
        """Run tasks once the node is ready."""
        await self._node_is_ready.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recycler.watch())
            await self._runner.run()
        await asyncio.Event().wait()  # quiet: the end comes by `stop`

    async def receive(self, message: Mapping[str, object]) -> None:
        """Hear that the node is ready, and what other processes say."""
        if message.get("type") == "ready":
            self._node_is_ready.set()
        else:
            self._process.messenger.receive(message)

    async def quiet(self) -> None:
        """Claim no more."""
        self._runner.quiet()

    async def stop(self, grace: float) -> None:
        """Finish what runs within its grace, in the background too, give the rest back."""
        until = self._now() + grace
        await self._runner.stop(grace)
        await self._process.finish(max(0.0, until - self._now()))
        if not self._leaving:
            self._leaving = True
            self._wake_ups.close()
            await self._worker.teardown()
            if self._runner.has_stuck:
                self._link.skip_interpreter_shutdown()
                await self._runner.stop_touching()
            self._database.close()

    def _replace_process(self, stuck: StuckAttempt | None, sentence: str) -> None:
        """A handler does not end: the process is replaced, and ends with it when its neighbours have ended."""
        self._link.stuck(None if stuck is None else stuck.to_json(), sentence)


class PeriodicService:
    """A process that runs a periodic worker.

    Args:
        worker: the user's code, with its settings.
        database: to register the process, and to say that it goes on.
        events: what happens.
        client: for ``self.process.client``.
        shared: makes what is behind ``self.process.shared``, on the event loop.
        attach: called with the process at the start; what else is done in it begins there.
    """

    def __init__(
        self,
        worker: Worker,
        database: Database,
        events: EventBus,
        client: Any = None,
        shared: SharedFactory | None = None,
        attach: Attach = attach_nothing,
    ) -> None:
        self._worker = worker
        self._database = database
        self._events = events
        self._client = client
        self._shared = shared
        self._attach = attach
        self._node_is_ready = asyncio.Event()

    async def start(self, link: Link) -> Mapping[str, object]:
        """Register the process."""
        self._now = asyncio.get_running_loop().time
        self._outages = OutageTracker(self._events, self._now)
        self._process = ProcessContext(link, self._events, options=self._worker.settings.options, client=self._client)
        self._grace = link.grace
        self._process.find_shared = self._shared() if self._shared else None
        self._process.messenger.on(LIMITS_ACTION, lambda _: resource_limits_of(self._worker.settings))
        self._worker.set_process(self._process)
        self._attach(self._process)
        _, self._process_id = await register_this_process_with_retry(self._database, link, self._outages)
        return {"process_id": self._process_id}

    async def run(self) -> None:
        """Run the worker's rounds once the node is ready; return when the worker leaves by itself."""
        await self._node_is_ready.wait()
        beat = keep_heartbeat(self._database, self._process_id, self._outages, self._events)
        beating = asyncio.create_task(beat, name="beat")
        try:
            await self._worker.start()
            await self._worker.ended()
            await self._process.finish(self._grace)
        finally:
            beating.cancel()
            await asyncio.wait([beating])

    async def receive(self, message: Mapping[str, object]) -> None:
        """Hear that the node is ready, and what other processes say."""
        if message.get("type") == "ready":
            self._node_is_ready.set()
        else:
            self._process.messenger.receive(message)

    async def quiet(self) -> None:
        """Begin no further round."""
        self._stopping = asyncio.create_task(self._worker.stop(), name="stop")

    async def stop(self, grace: float) -> None:
        """Let the round that runs end within its grace, and what runs in the background; else cancel it."""
        until = self._now() + grace
        try:
            async with asyncio.timeout(grace):
                await asyncio.shield(self._stopping)
        except TimeoutError:
            await self._worker.abandon()
        await self._process.finish(max(0.0, until - self._now()))
        self._database.close()
        await self._worker.ended()  # `run`, which waits for it too, may be cancelled before it can tell what was raised
