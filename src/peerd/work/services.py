"""The services of worker processes: one runs tasks, one runs a periodic worker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar

from peerd.config.settings import WorkSettings
from peerd.domain.outcome import StuckAttempt
from peerd.domain.ring import ClaimRevoked, Ring, TasksAvailable
from peerd.doorbell.wake_ups import RingReceiver
from peerd.runtime.concurrency import PeriodicStep, PeriodicThread, start_thread
from peerd.runtime.metrics.registry import AttemptStatistics
from peerd.runtime.process.link import Link
from peerd.runtime.process.process_context import STACK_ACTION, ProcessContext
from peerd.shell import CHECK_EVERY, ProcessShell, Service, reasons_to_recycle
from peerd.store.known_handlers import encode_handlers
from peerd.store.processes import ProcessCapabilities
from peerd.store.take.claimer import Claimer
from peerd.work.attempt_log import LineCollector
from peerd.work.executor_slots import stack_reporter
from peerd.work.line_writer import LineWriter
from peerd.work.statistics_writer import StatisticsWriter
from peerd.work.task_runner import Runner
from peerd.work.task_worker import TaskWorker
from peerd.work.worker import BaseWorker, Worker

LAST_STATISTICS_TIMEOUT: Final = 2.0
"""Seconds that a stop waits until the counts of the last attempts are written."""
LAST_LINES_TIMEOUT: Final = 2.0
"""Seconds that a stop waits until the last log lines are written."""
SECOND_POLL_AFTER: Final = 0.1
"""Seconds between the poll that a ring causes and a second one, where a server may lag behind another."""

W = TypeVar("W", bound=BaseWorker)


class WorkerService(Service, Generic[W]):
    """What the services of worker processes have in common."""

    def __init__(self, worker: W) -> None:
        settings = worker.settings
        self._worker = worker
        self.limits = {"memory": settings.recycle_memory, "cpu": settings.recycle_cpu}
        self.options = settings.options

    async def start(self, shell: ProcessShell) -> None:
        """Give the worker its process."""
        self._shell = shell
        self._worker.set_process(shell.process)


class RungPolling:
    """Has a process poll at once after a ring, and less often while the doorbell works.

    Args:
        process: gets the rings.
        settings: its queues, and how often it polls.
        runner: of the process.
        may_lag: whether the server that is read may lack for a moment what another one has committed.
    """

    def __init__(
        self, process: ProcessContext, settings: WorkSettings, runner: Runner, *, may_lag: bool = True
    ) -> None:
        self._runner = runner
        self._settings = settings
        self._queues = frozenset(settings.queues)
        self._may_lag = may_lag
        self._second_poll: asyncio.TimerHandle | None = None
        self.rings = RingReceiver(process, self._on_ring, self._on_status)

    def poll_every(self) -> float:
        """Seconds between two polls at the most."""
        every = self._settings.poll_every
        return max(every, self._settings.rung_poll_every) if self.rings.doorbell_works else every

    def _on_status(self, works: bool) -> None:  # noqa: FBT001 - called with what it is
        if not works:
            self._runner.ring()  # its pause may be a long one

    def _on_ring(self, ring: Ring) -> Awaitable[None] | None:
        match ring:
            case TasksAvailable(queues) if not queues or not self._queues.isdisjoint(queues):
                self._poll_for_ring()
            case ClaimRevoked(tasks):
                return self._runner.check_claims(frozenset(tasks))
        return None

    def _poll_for_ring(self) -> None:
        self._runner.ring()
        if self._may_lag and self._second_poll is None:
            self._second_poll = asyncio.get_running_loop().call_later(SECOND_POLL_AFTER, self._poll_again)

    def _poll_again(self) -> None:
        self._second_poll = None
        self._runner.ring()


class TaskService(WorkerService[TaskWorker]):
    """A process that runs tasks.

    Args:
        worker: runs them.
        statistics: the counts of its attempts, which are written to the database; None: they are not counted.
        ticker: makes the thread that touches the claims.
    """

    heartbeat_every = None  # touching the claims writes it
    _is_closing = False
    _statistics_writer: StatisticsWriter | None = None
    _line_writer: LineWriter | None = None

    def __init__(
        self,
        worker: TaskWorker,
        statistics: AttemptStatistics | None = None,
        ticker: Callable[[PeriodicStep], PeriodicThread] = PeriodicThread,
    ) -> None:
        super().__init__(worker)
        self._statistics = statistics
        self._ticker = ticker
        handlers = encode_handlers(worker.known_handlers())
        self.capabilities = ProcessCapabilities(worker.settings.queues, handlers, worker.settings.count)

    async def start(self, shell: ProcessShell) -> None:
        """Set the user's worker up, and prepare to claim."""
        await super().start(shell)
        await self._worker.setup()
        settings, link, claimer = self._worker.settings, shell.link, self._make_claimer()
        may_lag = await asyncio.to_thread(shell.database.may_lag)
        self._runner = runner = Runner(
            self._worker,
            shell.database,
            claimer,
            node=link.node,
            events=shell.events,
            client=shell.client,
            ticker=self._ticker,
            lines=self._start_writing_lines(),
        )
        runner.stuck = self._replace_process
        self._polling = RungPolling(shell.process, settings, runner, may_lag=may_lag)
        runner.poll_every = self._polling.poll_every
        if link.run_directory is not None:
            self._polling.rings.open(link.run_directory)
        link.report_in_flight(lambda: runner.in_flight)
        link.on_urgent_request(STACK_ACTION, stack_reporter(runner.executor_slots, link.slot, link.pid))
        if self._statistics is not None:
            self._start_statistics(self._statistics, claimer)
        shell.process.metrics.add_source(lambda: runner.samples(link.kind))

    async def run(self) -> None:
        """Run tasks once the node is ready."""
        await self._shell.node_is_ready.wait()
        runner, link = self._runner, self._shell.link
        async with asyncio.TaskGroup() as group:
            recycling = recycle_when_due(
                self._worker.settings,
                link,
                ended=lambda: runner.executor_slots.ended_count,
                quiet=runner.quiet,
                is_drained=lambda: runner.is_drained and not self._shell.process.scheduled_runs,
            )
            group.create_task(recycling)
            await runner.run()
        await asyncio.Event().wait()  # it claims no more: the end of the process ends this

    async def drain(self, grace: float) -> None:
        """Give running tasks their grace, and release the rest."""
        await self._runner.stop(grace)

    async def close(self, grace: float) -> None:
        """Tear the user's worker down, and write the last counts and lines; once, also after a second stop."""
        if not self._is_closing:
            self._is_closing = True
            self._polling.rings.close()
            await self._stop_statistics()
            await self._worker.teardown()
            if self._line_writer is not None:
                await asyncio.to_thread(self._line_writer.stop, LAST_LINES_TIMEOUT)
            if self._runner.executor_slots.has_stuck:
                self._shell.link.skip_interpreter_shutdown()
                await self._runner.stop_touching()

    def _make_claimer(self) -> Claimer:
        node, settings = self._shell.node, self._worker.settings
        return Claimer(
            node_id=node.id,
            incarnation=node.incarnation or "",
            process_id=self._shell.process_id,
            queues=settings.queues,
            default_attempts=settings.max_attempts,
            attempts_of=self._worker.attempts_by_handler(),
        )

    def _start_statistics(self, statistics: AttemptStatistics, claimer: Claimer) -> None:
        self._statistics_writer = writer = StatisticsWriter(
            self._shell.database,
            statistics,
            claimer.node_id,
            claimer.process_id,
            running=self._runner.executor_slots.running_since,
            slots=self._worker.settings.count,
            outages=self._shell.outages,
            events=self._shell.events,
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
        level, directory = self._worker.settings.log_level, self._shell.link.run_directory
        self._line_writer = LineWriter(self._shell.database, self._shell.events, level, directory)
        self._line_writer.start()
        return self._line_writer.lines

    def _replace_process(self, stuck: StuckAttempt | None, sentence: str) -> None:
        """A handler does not end: the process is replaced, and ends when its other tasks have ended."""
        self._shell.link.stuck(None if stuck is None else stuck.to_json(), sentence)


class PeriodicService(WorkerService[Worker]):
    """A process that runs a periodic worker."""

    async def run(self) -> None:
        """Run the worker's loop once the node is ready; return when the worker stops by itself."""
        await self._shell.node_is_ready.wait()
        await self._worker.start()
        await self._worker.ended()
        await self._shell.process.finish(self._shell.link.grace)

    async def drain(self, grace: float) -> None:
        """Begin no further round; give the running one its grace, and cancel it then."""
        stopping = asyncio.create_task(self._worker.stop(), name="stop")
        try:
            async with asyncio.timeout(grace):
                await asyncio.shield(stopping)
        except TimeoutError:
            await self._worker.abandon()

    async def close(self, grace: float) -> None:
        """Raise the error of the worker: `run` waits for it too, but may be cancelled before it can."""
        await self._worker.ended()


async def recycle_when_due(
    settings: WorkSettings,
    link: Link,
    ended: Callable[[], int],
    quiet: Callable[[], object],
    is_drained: Callable[[], bool],
) -> None:
    """Wait until a process has `ended` many attempts, or is old; then ask for a successor, drain, and end.

    Nothing is cut off for it. The successor starts at once, and the process claims nothing more and runs on until its
    tasks have ended, without a deadline but the `drain_timeout`.
    """
    reasons = reasons_to_recycle(
        settings.recycle_after,
        settings.recycle_age,
        ended,
        lambda count: f"it has run {count} tasks (recycle_after = {settings.recycle_after})",
    )
    reason = await anext(reasons)
    link.drain(reason)
    quiet()
    with suppress(TimeoutError):
        async with asyncio.timeout(settings.drain_timeout):
            while not is_drained():  # noqa: ASYNC110 - it may take hours
                await asyncio.sleep(CHECK_EVERY)
    link.recycle(reason)
