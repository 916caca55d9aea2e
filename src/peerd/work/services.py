"""The services of worker processes: one runs tasks, one runs a periodic worker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, TypeVar

from peerd.domain.duration import format_duration
from peerd.domain.outcome import StuckAttempt
from peerd.runtime.concurrency.threads import PeriodicStep, PeriodicThread, start_thread
from peerd.runtime.observability.attempt_statistics import AttemptStatistics
from peerd.runtime.observability.events import EventBus
from peerd.runtime.process.link import Link
from peerd.runtime.process.process_context import LIMITS_ACTION, STACK_ACTION, ProcessContext
from peerd.store.connection.database import Database
from peerd.store.connection.outages import OutageTracker
from peerd.store.nodes.known_handlers import encode_handlers
from peerd.store.nodes.processes import (
    ProcessCapabilities,
    end_process,
    keep_heartbeat,
    register_this_process_with_retry,
)
from peerd.store.take.claimer import Claimer
from peerd.work.attempts.stack_reporter import StackReporter
from peerd.work.claims.wake_ups import WakeUpReceiver
from peerd.work.logs.attempt_log import LineCollector
from peerd.work.logs.line_writer import LineWriter
from peerd.work.runner_metrics import runner_samples
from peerd.work.statistics_writer import StatisticsWriter
from peerd.work.task_runner import Runner
from peerd.work.task_worker import TaskWorker
from peerd.work.worker import BaseWorker, EffectiveWorkerSettings, Worker

RECYCLE_CHECK_EVERY: Final = 1.0
"""Seconds."""
LAST_STATISTICS_TIMEOUT: Final = 2.0
"""Seconds that a stop waits until the counts of the last attempts are written."""
LAST_LINES_TIMEOUT: Final = 2.0
"""Seconds that a stop waits until the last log lines are written."""

W = TypeVar("W", bound=BaseWorker)
SharedFactory = Callable[[], Callable[..., Any]]
Attach = Callable[[ProcessContext], object]


class WorkerService(Generic[W]):
    """What the services of worker processes have in common.

    `client` is for ``ctx.client`` and ``self.process.client``. `shared` makes the function behind ``ctx.shared``, on
    the event loop. `attach` is called with the process before the worker's setup, to add other components to it.
    """

    def __init__(
        self,
        worker: W,
        database: Database,
        events: EventBus,
        client: Any = None,
        *,
        shared: SharedFactory | None = None,
        attach: Attach | None = None,
    ) -> None:
        self._worker = worker
        self._database = database
        self._events = events
        self._client = client
        self._shared = shared
        self._attach = attach
        self._node_is_ready = asyncio.Event()

    async def receive(self, message: Mapping[str, object]) -> None:
        """Take a frame of the master: the node is ready, or a message of another process."""
        if message.get("type") == "ready":
            self._node_is_ready.set()
        else:
            self._process.messenger.receive(message)

    def _start_process(self, link: Link) -> None:
        self._now = asyncio.get_running_loop().time
        self._outages = OutageTracker(self._events, self._now)
        settings = self._worker.settings
        self._process = ProcessContext(link, self._events, options=settings.options, client=self._client)
        self._process.find_shared = self._shared() if self._shared else None
        resource_limits = {"memory": settings.recycle_memory, "cpu": settings.recycle_cpu}
        self._process.messenger.on(LIMITS_ACTION, lambda _: resource_limits)
        self._worker.set_process(self._process)
        if self._attach is not None:
            self._attach(self._process)


class TaskService(WorkerService[TaskWorker]):
    """A process that runs tasks."""

    ticker: Callable[[PeriodicStep], PeriodicThread] = PeriodicThread
    """Makes the thread that touches the claims."""
    statistics: AttemptStatistics | None = None
    """The counts of its attempts, which are written to the database; None: they are not counted."""
    _leaving = False
    _statistics_writer: StatisticsWriter | None = None
    _line_writer: LineWriter | None = None

    async def start(self, link: Link) -> Mapping[str, object]:
        """Register the process, and set the user's worker up."""
        self._link = link
        self._start_process(link)
        settings = self._worker.settings
        capabilities = ProcessCapabilities(
            settings.queues, encode_handlers(self._worker.known_handlers()), settings.count
        )
        node, process_id = await register_this_process_with_retry(self._database, link, self._outages, capabilities)
        try:
            await self._worker.setup()
        except BaseException:
            await asyncio.to_thread(self._database.run, end_process, process_id, "its setup failed")
            raise
        claimer = Claimer(
            node_id=node.id,
            incarnation=node.incarnation or "",
            process_id=process_id,
            queues=settings.queues,
            default_attempts=settings.max_attempts,
            attempts_of=self._worker.attempts_by_handler(),
        )
        may_lag = await asyncio.to_thread(self._database.may_lag)
        self._wake_ups = WakeUpReceiver(self._process, settings, may_lag=may_lag)
        self._runner = runner = Runner(
            self._worker,
            self._database,
            claimer,
            node=link.node,
            events=self._events,
            client=self._client,
            ticker=self.ticker,
            lines=self._start_writing_lines(),
        )
        runner.stuck = self._replace_process
        runner.poll_every = self._wake_ups.poll_every
        self._wake_ups.set_runner(runner)
        if link.run_directory is not None:
            self._wake_ups.listen(link.run_directory)
        link.report_in_flight(lambda: runner.in_flight)
        link.on_urgent_request(STACK_ACTION, StackReporter(runner.executor_slots, link.slot, link.pid).answer)
        if self.statistics is not None:
            self._start_statistics(self.statistics, claimer)
        self._process.metrics.add_source(lambda: runner_samples(link.kind, runner))
        self._recycling = partial(
            recycle_when_due,
            settings,
            link,
            ended=lambda: runner.executor_slots.ended_count,
            quiet=runner.quiet,
            is_drained=lambda: runner.is_drained and not self._process.scheduled_runs,
        )
        return {"process_id": process_id}

    async def run(self) -> None:
        """Run tasks once the node is ready."""
        await self._node_is_ready.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recycling())
            await self._runner.run()
        await asyncio.Event().wait()  # quiet: `stop` ends the process

    async def quiet(self) -> None:
        self._runner.quiet()

    async def stop(self, grace: float) -> None:
        """Give running tasks and background work their grace, and release the rest."""
        until = self._now() + grace
        await self._runner.stop(grace)
        await self._process.finish(max(0.0, until - self._now()))
        if not self._leaving:
            self._leaving = True
            self._wake_ups.close()
            await self._stop_statistics()
            await self._worker.teardown()
            if self._line_writer is not None:
                await asyncio.to_thread(self._line_writer.stop, LAST_LINES_TIMEOUT)
            if self._runner.executor_slots.has_stuck:
                self._link.skip_interpreter_shutdown()
                await self._runner.stop_touching()
            self._database.close()

    def _start_statistics(self, statistics: AttemptStatistics, claimer: Claimer) -> None:
        self._statistics_writer = writer = StatisticsWriter(
            self._database,
            statistics,
            claimer.node_id,
            claimer.process_id,
            running=self._runner.executor_slots.running_since,
            slots=self._worker.settings.count,
            outages=self._outages,
            events=self._events,
        )
        self._statistics_ticker = PeriodicThread(writer.round, "peerd-statistics")
        self._statistics_ticker.start()

    async def _stop_statistics(self) -> None:
        """Write the counts of the last attempts; a database that does not answer is not waited for."""
        if self._statistics_writer is not None:
            self._statistics_ticker.stop()
            await asyncio.wait(
                [start_thread(self._statistics_writer.flush, name="statistics")], timeout=LAST_STATISTICS_TIMEOUT
            )

    def _start_writing_lines(self) -> LineCollector | None:
        if not self._worker.settings.log_lines:
            return None
        level, directory = self._worker.settings.log_level, self._link.run_directory
        self._line_writer = LineWriter(self._database, self._events, level, directory)
        self._line_writer.start()
        return self._line_writer.lines

    def _replace_process(self, stuck: StuckAttempt | None, sentence: str) -> None:
        """A handler does not end: the process is replaced, and ends when its other tasks have ended."""
        self._link.stuck(None if stuck is None else stuck.to_json(), sentence)


class PeriodicService(WorkerService[Worker]):
    """A process that runs a periodic worker."""

    async def start(self, link: Link) -> Mapping[str, object]:
        self._grace = link.grace
        self._start_process(link)
        _, self._process_id = await register_this_process_with_retry(self._database, link, self._outages)
        return {"process_id": self._process_id}

    async def run(self) -> None:
        """Run the worker's loop once the node is ready; return when the worker stops by itself."""
        await self._node_is_ready.wait()
        heartbeats = keep_heartbeat(self._database, self._process_id, self._outages, self._events)
        heartbeat = asyncio.create_task(heartbeats, name="heartbeat")
        try:
            await self._worker.start()
            await self._worker.ended()
            await self._process.finish(self._grace)
        finally:
            heartbeat.cancel()
            await asyncio.wait([heartbeat])

    async def quiet(self) -> None:
        """Begin no further round."""
        self._stopping = asyncio.create_task(self._worker.stop(), name="stop")

    async def stop(self, grace: float) -> None:
        """Give the running round and background work their grace, and cancel the rest."""
        until = self._now() + grace
        try:
            async with asyncio.timeout(grace):
                await asyncio.shield(self._stopping)
        except TimeoutError:
            await self._worker.abandon()
        await self._process.finish(max(0.0, until - self._now()))
        self._database.close()
        await self._worker.ended()  # `run` waits for it too, but may be cancelled before it can raise the error


async def recycle_when_due(
    settings: EffectiveWorkerSettings,
    link: Link,
    ended: Callable[[], int],
    quiet: Callable[[], object],
    is_drained: Callable[[], bool],
) -> None:
    """Wait until a process has `ended` many attempts, or is old; then ask for a successor, drain, and end.

    Nothing is cut off for it. The successor starts at once, and the process claims nothing more and runs on until its
    tasks have ended, without a deadline but the `drain_timeout`. A process that uses too much memory or processor time
    is replaced by the agent, and has its grace and no more. The age is spread by a tenth, so that processes that were
    started together are not replaced together.
    """
    now = asyncio.get_running_loop().time
    started_at, spread = now(), random.uniform(0.9, 1.1)
    while (reason := _find_reason(settings, ended(), now() - started_at, spread)) is None:  # noqa: ASYNC110
        await asyncio.sleep(RECYCLE_CHECK_EVERY)
    link.drain(reason)
    quiet()
    with suppress(TimeoutError):
        async with asyncio.timeout(settings.drain_timeout):
            while not is_drained():  # noqa: ASYNC110 - it may take hours
                await asyncio.sleep(RECYCLE_CHECK_EVERY)
    link.recycle(reason)


def _find_reason(settings: EffectiveWorkerSettings, ended: int, age: float, spread: float) -> str | None:
    if settings.recycle_after is not None and ended >= settings.recycle_after:
        return f"it has run {ended} tasks (recycle_after = {settings.recycle_after})"
    if settings.recycle_age is not None and age >= settings.recycle_age * spread:
        return f"it is {format_duration(round(age))} old (recycle_age)"
    return None
