"""In the agent: gives waiting runs to worker processes or enqueues their tasks, and records how runs have ended."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

import msgspec

from peerd.domain.errors import InvalidTask, NoReply, PeerdError, RequestFailed, Undeliverable
from peerd.domain.files import STORAGE_KINDS
from peerd.domain.schedule import ALL, CLUSTER, RunStatus, Schedule
from peerd.runtime.frames import WEB_ROLE, Peer
from peerd.runtime.inbox import Message
from peerd.runtime.observability.events import EventBus, ScheduleRunEnded
from peerd.runtime.observability.log_messages import schedule_run_started
from peerd.runtime.process.process_context import ProcessContext
from peerd.schedules.registry import ScheduleRegistry
from peerd.schedules.run_executor import REPORT_ACTION, RUN_ACTION, RunReport, RunRequest
from peerd.store import schedule_runs
from peerd.store.connection.database import DatabaseThreads
from peerd.store.schedule_runs import NodeIdentity, ScheduleRun
from peerd.store.schedules import CLUSTER_ROW, ScheduleSnapshot

MIN_WAIT_FOR_WORKER: Final = 10.0
"""Minimum of seconds that a run waits for a worker process on any node before it is refused."""
CUSTOM_ALL: Final = "custom all"
"""The origin of a run for all processes of the node that a custom trigger has sent."""
PROCESS_LEFT_ERROR: Final = "its process left before it could begin"


class RunDispatcher:
    """Brings the runs of one node to its worker processes."""

    def __init__(
        self,
        registry: ScheduleRegistry,
        process: ProcessContext,
        threads: DatabaseThreads,
        identity: NodeIdentity,
        events: EventBus,
    ) -> None:
        self._registry = registry
        self._process = process
        self._threads = threads
        self._identity = identity
        self._events = events
        self._requested: set[int] = set()
        self._writing = asyncio.Lock()
        """Reports and process deaths are recorded in the order of their arrival."""
        self.wake: Callable[[], None] = lambda: None
        """Called when a run has ended, so that others may begin."""
        process.messenger.on(REPORT_ACTION, self._record_report)

    async def process_snapshot(self, snapshot: ScheduleSnapshot) -> None:
        """Start the runs that may start, and repeat the requests of an earlier agent of this node."""
        self._requested &= {run.id for run in snapshot.running}
        for run in snapshot.waiting:
            schedule = self._registry.get(run.schedule)
            if schedule is not None and self._may_take(run, schedule, snapshot):
                await self._start_run(run, schedule, (snapshot.now - run.created_at).total_seconds())
        for run in snapshot.running:
            schedule = self._registry.get(run.schedule)
            if run.id not in self._requested and schedule is not None:
                self._request_in_background(run, schedule, just_claimed=False)

    async def end_runs_of_dead_process(self, pid: int, cause: str) -> None:
        """End the runs of a process that has died."""
        async with self._writing:
            ended = await self._threads.run(schedule_runs.end_runs_of_process, self._identity, pid, cause)
        for run in ended:
            self._requested.discard(run.id)
            self._emit_ended(run, RunStatus.DIED, f"its process died: {cause}")
        if ended:
            self.wake()

    def _may_take(self, run: ScheduleRun, schedule: Schedule, snapshot: ScheduleSnapshot) -> bool:
        """Whether this node may take a run: not with another definition than the row's, nor while it drains."""
        if run.node_id is not None:
            return True
        cluster = snapshot.rows.get((run.schedule, CLUSTER_ROW))
        if schedule.type == CLUSTER and (cluster is None or cluster.fingerprint != schedule.fingerprint):
            return False
        return not snapshot.draining or run.origin == "hand"

    async def _start_run(self, run: ScheduleRun, schedule: Schedule, waited: float) -> None:
        if schedule.queue is not None:
            await self._enqueue(run, schedule)
            return
        processes = self._processes_for(run, schedule)
        if not processes:
            await self._refuse_if_overdue(run, schedule, waited)
            return
        slots = [(peer.slot, peer.pid) for peer in processes]
        for claimed in await self._threads.run(schedule_runs.claim_run, run, schedule, self._identity, slots):
            self._events.emit(schedule_run_started(run.schedule, claimed.id, claimed.slot or ""))
            self._request_in_background(claimed, schedule, just_claimed=True)

    async def _enqueue(self, run: ScheduleRun, schedule: Schedule) -> None:
        try:
            enqueued = await self._threads.run(schedule_runs.enqueue_run, run, schedule, self._identity)
        except InvalidTask as error:
            await self._end(run, RunStatus.FAILED, str(error))
            return
        if enqueued is not None:
            self._emit_ended(enqueued, RunStatus.ENQUEUED, None, queue=schedule.queue)

    def _processes_for(self, run: ScheduleRun, schedule: Schedule) -> list[Peer]:
        """The worker processes that run it: all that qualify, or a random one."""
        workers = self._process.messenger.workers
        if schedule.workers is None:
            ready = [peer for peer in workers if peer.role != WEB_ROLE and peer.kind not in STORAGE_KINDS]
        else:
            ready = [peer for peer in workers if peer.kind in schedule.workers]
        if not ready or (schedule.type == ALL and run.origin != "again") or run.origin == CUSTOM_ALL:
            return ready
        return [random.choice(ready)]

    async def _refuse_if_overdue(self, run: ScheduleRun, schedule: Schedule, waited: float) -> None:
        """End a run that no process could take; before that, one may become ready here or on another node."""
        kinds = f" of {', '.join(schedule.workers)}" if schedule.workers else ""
        error = f"no worker process{kinds} was ready for {waited:.0f} s"
        is_overdue = schedule.misfire == "skip" and waited > max(schedule.misfire_grace, MIN_WAIT_FOR_WORKER)
        if is_overdue:
            await self._end(run, RunStatus.REFUSED, error)

    def _request_in_background(self, run: ScheduleRun, schedule: Schedule, *, just_claimed: bool) -> None:
        self._requested.add(run.id)
        self._process.run_in_background(self._request_run(run, schedule, just_claimed=just_claimed))

    async def _request_run(self, run: ScheduleRun, schedule: Schedule, *, just_claimed: bool) -> None:
        """Send a run to its process. If the reply is missing, a report or the process's death ends the run.

        ``just_claimed``: this agent has claimed it now, so no earlier agent can have sent it.
        """
        assert schedule.run is not None
        assert run.pid is not None
        try:
            request = RunRequest(
                run_id=run.id,
                schedule=run.schedule,
                tick_at=run.tick_at,
                origin=run.origin,
                function=schedule.run,
                args=schedule_runs.run_arguments(run, schedule),
                timeout=schedule.timeout,
            )
            accepted = await self._process.messenger.request(run.pid, RUN_ACTION, msgspec.to_builtins(request))
        except NoReply:
            return
        except Undeliverable:
            accepted = False
        except (RequestFailed, PeerdError) as error:
            await self._end(run, RunStatus.REFUSED, str(error))
            return
        if accepted:
            return
        if just_claimed and schedule.type != ALL and run.origin != CUSTOM_ALL:
            for_any_node = schedule.type == CLUSTER or run.origin == "hand"
            await self._threads.run(schedule_runs.release_run, run, for_any_node=for_any_node)
            self._requested.discard(run.id)
        else:
            await self._end(run, RunStatus.REFUSED if just_claimed else RunStatus.DIED, PROCESS_LEFT_ERROR)

    async def _end(self, run: ScheduleRun, status: RunStatus, error: str) -> None:
        if await self._threads.run(schedule_runs.end_run, run.id, status, error, was=run.status):
            self._requested.discard(run.id)
            self._emit_ended(run, status, error)
            self.wake()

    async def _record_report(self, message: Message) -> bool:
        """Record how a run has ended. If that fails (the database is away), the process repeats its report."""
        report = msgspec.convert(message.data, RunReport)
        async with self._writing:
            written = await self._threads.run(
                schedule_runs.end_run, report.run_id, report.status, report.error, report.traceback
            )
        self._requested.discard(report.run_id)
        self.wake()
        return written

    def _emit_ended(self, run: ScheduleRun, status: RunStatus, error: str | None, queue: str | None = None) -> None:
        ended = ScheduleRunEnded(
            schedule=run.schedule,
            run_id=run.id,
            status=status,
            seconds=0.0,
            error=error,
            task_id=run.task_id,
            queue=queue,
        )
        self._events.emit(ended)
