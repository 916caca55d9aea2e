"""In the agent: gives waiting runs to worker processes or enqueues their tasks, and writes how runs have ended."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from peerd.domain.errors import InvalidTask, NoReply, PeerdError, RequestFailed, Undeliverable
from peerd.domain.schedule import ALL, CLUSTER, RunStatus, Schedule
from peerd.runtime.messages.addressing import Peer
from peerd.runtime.messages.message_handlers import Message
from peerd.runtime.observability.events import Events, ScheduleRunBegan, ScheduleRunEnded
from peerd.runtime.process.process_context import ProcessContext
from peerd.schedules.registry import Book
from peerd.schedules.run_requests import ENDED, RUN, Order, report_of, to_json
from peerd.store.connection.database import DatabaseThreads
from peerd.store.schedule_runs import (
    Here,
    Run,
    arguments_of,
    end_run,
    end_runs_of_process,
    enqueue_run,
    give_up,
    put_back,
    take,
)
from peerd.store.schedules import THE_CLUSTER, Sight

LEAST_PATIENCE: Final = 10.0
"""Seconds that a run waits for a worker process at the least, wherever one may be, before it is refused."""
TO_ALL: Final = "custom all"
"""The origin of a run for all processes of the node that a class of the user has sent."""
LEFT: Final = "its process left before it could begin"


class Dispatch:
    """The way of runs to where they are run, on one node.

    Args:
        book: the schedules of the node.
        process: the agent's process.
        threads: of the database.
        here: the node, and its life.
        events: what happens.
    """

    def __init__(
        self, book: Book, process: ProcessContext, threads: DatabaseThreads, here: Here, events: Events
    ) -> None:
        self._book = book
        self._process = process
        self._threads = threads
        self._here = here
        self._events = events
        self._sent: set[int] = set()
        self._writing = asyncio.Lock()
        """Reports and deaths are written in the order in which they came."""
        self.wake: Callable[[], None] = lambda: None
        """Called when a run has ended, so that others may begin."""
        process.messenger.on(ENDED, self._write_report)

    async def serve(self, sight: Sight) -> None:
        """Begin what can begin, and see to what an earlier agent of this node has begun."""
        self._sent &= {run.id for run in sight.running}
        for run in sight.waiting:
            schedule = self._book.get(run.schedule)
            if schedule is not None and self._may_take(run, schedule, sight):
                await self._begin(run, schedule, (sight.now - run.created_at).total_seconds())
        for run in sight.running:
            schedule = self._book.get(run.schedule)
            if run.id not in self._sent and schedule is not None:
                self._send(run, schedule, afresh=False)

    async def take_death(self, pid: int, cause: str) -> None:
        """End the runs of a process that has died."""
        async with self._writing:
            ended = await self._threads.run(end_runs_of_process, self._here, pid, cause)
        for run in ended:
            self._sent.discard(run.id)
            self._say_ended(run, RunStatus.DIED, f"its process died: {cause}")
        if ended:
            self.wake()

    def _may_take(self, run: Run, schedule: Schedule, sight: Sight) -> bool:
        """Whether a run is for this node: of the definition that stands, and not for a node that is drained."""
        if run.node_id is not None:
            return True
        cluster = sight.clocks.get((run.schedule, THE_CLUSTER))
        if schedule.type == CLUSTER and (cluster is None or cluster.fingerprint != schedule.fingerprint):
            return False
        return not sight.draining or run.origin == "hand"

    async def _begin(self, run: Run, schedule: Schedule, waited: float) -> None:
        if schedule.queue is not None:
            await self._enqueue(run, schedule)
            return
        processes = self._processes_for(run, schedule)
        if not processes:
            await self._be_patient(run, schedule, waited)
            return
        places = [(peer.slot, peer.pid) for peer in processes]
        for taken in await self._threads.run(take, run, schedule, self._here, places):
            self._events.emit(ScheduleRunBegan(schedule=run.schedule, run_id=taken.id, slot=taken.slot or ""))
            self._send(taken, schedule, afresh=True)

    async def _enqueue(self, run: Run, schedule: Schedule) -> None:
        try:
            ended = await self._threads.run(enqueue_run, run, schedule, self._here)
        except InvalidTask as error:
            if await self._threads.run(give_up, run.id, RunStatus.FAILED, str(error)):
                self._say_ended(run, RunStatus.FAILED, str(error))
            return
        if ended is not None:
            self._say_ended(ended, RunStatus.ENQUEUED, None, queue=schedule.queue)

    def _processes_for(self, run: Run, schedule: Schedule) -> list[Peer]:
        """The worker processes that shall run it: all, or one at random."""
        ready = [
            peer
            for peer in self._process.messenger.workers
            if schedule.workers is None or peer.kind in schedule.workers
        ]
        if not ready or (schedule.type == ALL and run.origin != "again") or run.origin == TO_ALL:
            return ready
        return [random.choice(ready)]

    async def _be_patient(self, run: Run, schedule: Schedule, waited: float) -> None:
        """No process could run it now; perhaps one is about to be ready, here or on another node."""
        kinds = f" of {', '.join(schedule.workers)}" if schedule.workers else ""
        error = f"no worker process{kinds} was ready for {waited:.0f} s"
        given_up = schedule.misfire == "skip" and waited > max(schedule.misfire_grace, LEAST_PATIENCE)
        if given_up and await self._threads.run(give_up, run.id, RunStatus.REFUSED, error):
            self._say_ended(run, RunStatus.REFUSED, error)

    def _send(self, run: Run, schedule: Schedule, *, afresh: bool) -> None:
        self._sent.add(run.id)
        self._process.run_in_background(self._order(run, schedule, afresh=afresh))

    async def _order(self, run: Run, schedule: Schedule, *, afresh: bool) -> None:
        """Give a run to its process. Where it is not known whether it was taken, a report or a death will tell.

        Args:
            run: it.
            schedule: whose it is.
            afresh: this agent has taken it just now, so that the process cannot have had it yet.
        """
        assert schedule.run is not None
        assert run.pid is not None
        order = Order(
            run_id=run.id,
            schedule=run.schedule,
            tick_at=run.tick_at,
            origin=run.origin,
            function=schedule.run,
            args=arguments_of(run, schedule),
            timeout=schedule.timeout,
        )
        try:
            taken = await self._process.messenger.request(run.pid, RUN, to_json(order))
        except NoReply:
            return
        except Undeliverable:
            taken = False
        except (RequestFailed, PeerdError) as error:
            await self._end(run, RunStatus.REFUSED, str(error))
            return
        if taken:
            return
        if afresh and schedule.type != ALL and run.origin != TO_ALL:
            await self._put_back(run, schedule)
        else:
            await self._end(run, RunStatus.REFUSED if afresh else RunStatus.DIED, LEFT)

    async def _put_back(self, run: Run, schedule: Schedule) -> None:
        for_any_node = schedule.type == CLUSTER or run.origin == "hand"
        await self._threads.run(put_back, run, for_any_node=for_any_node)
        self._sent.discard(run.id)

    async def _end(self, run: Run, status: RunStatus, error: str) -> None:
        if await self._threads.run(end_run, run.id, status, error):
            self._sent.discard(run.id)
            self._say_ended(run, status, error)
            self.wake()

    async def _write_report(self, message: Message) -> bool:
        """Write how a run has ended. What is raised (the database is away) lets its process say it again."""
        report = report_of(message.data)
        async with self._writing:
            written = await self._threads.run(end_run, report.run_id, report.status, report.error, report.traceback)
        self._sent.discard(report.run_id)
        self.wake()
        return written

    def _say_ended(self, run: Run, status: RunStatus, error: str | None, queue: str | None = None) -> None:
        self._events.emit(
            ScheduleRunEnded(
                schedule=run.schedule,
                run_id=run.id,
                status=status,
                seconds=0.0,
                error=error,
                task_id=run.task_id,
                queue=queue,
            )
        )
