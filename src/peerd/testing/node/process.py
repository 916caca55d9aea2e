"""What a worker's process does, one task at a time and when it is told: claim, run, write the outcome.

The claim, the attempt and the writing are the worker's own. There is no touch: nobody rescues between two steps.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from typing import Final

from peerd.domain.errors import DatabaseUnavailable, NodeNameTaken
from peerd.domain.task import Task
from peerd.operate.client import Client
from peerd.runtime.observability.events import AttemptStarted, EventBus
from peerd.store.claim.claim import claim, claimed_by_token
from peerd.store.claim.claimer import Claimer
from peerd.store.connection.database import DatabaseThreads
from peerd.store.connection.outages import OutageTracker
from peerd.store.limits.limited_claim import claim_limited, find_claimable
from peerd.store.nodes.nodes import Node, find_node, heartbeat, new_incarnation, register_incarnation
from peerd.store.nodes.processes import ProcessCapabilities, end_earlier_processes, end_process, register_process
from peerd.store.outcomes.touch import TaskProgress, report_progress
from peerd.store.statements.token import new_token
from peerd.store.tasks.read import find_task
from peerd.testing.execution import make_execution
from peerd.testing.node.messages import InlineMessageRouter
from peerd.work.attempts.active_attempt import ActiveAttempt, seconds_until_finish
from peerd.work.attempts.attempt_execution import Execution
from peerd.work.attempts.attempt_outcome import StopReason
from peerd.work.attempts.outcome_writer import OutcomeWriter
from peerd.work.claims.active_claims import ActiveClaims
from peerd.work.context import Context
from peerd.work.task_worker import TaskWorker

BACKGROUND_WITHIN: Final = 1.0
"""Seconds that work in the background has to end when the node is left."""


async def register_node(threads: DatabaseThreads, name: str) -> Node:
    """Begin a life of a node, in place of one that was left behind under its name, as an agent does."""
    before = await threads.read(find_node, name)
    incarnation = new_incarnation()
    replaces = None if before is None else before.incarnation
    if await threads.run(register_incarnation, name, incarnation, replaces=replaces) is None:
        raise NodeNameTaken(name, None)
    node = await threads.run(heartbeat, name, incarnation)
    await threads.run(end_earlier_processes, node.id, incarnation)
    return node


class InlineProcess:
    """A process that runs the tasks of one worker.

    Args:
        worker: the user's code, with its settings.
        threads: the database.
        node: the node below which it is registered.
        client: for ``ctx.client`` and ``ctx.enqueue``.
        message_router: carries its messages.
        events: what happens.
    """

    def __init__(
        self,
        worker: TaskWorker,
        threads: DatabaseThreads,
        node: Node,
        client: Client,
        message_router: InlineMessageRouter,
        events: EventBus,
    ) -> None:
        self._worker = worker
        self._threads = threads
        self._node = node
        self._client = client
        self._message_router = message_router
        self._events = events
        self._pending_token: int | None = None
        worker.events = events

    async def start(self) -> None:
        """Register, and set the user's worker up."""
        incarnation, kind = self._node.incarnation or "", type(self._worker).__name__
        settings = self._worker.settings
        process_id = await self._threads.run(
            register_process,
            node_id=self._node.id,
            incarnation=incarnation,
            kind=kind,
            slot=f"{kind}-1",
            role="worker",
            pid=os.getpid(),
            capabilities=ProcessCapabilities(settings.queues),
        )
        self._claimer = Claimer(
            node_id=self._node.id,
            incarnation=incarnation,
            process_id=process_id,
            queues=settings.queues,
            default_attempts=settings.max_attempts,
            attempts_of=self._worker.attempts_by_handler(),
        )
        self._active_claims = ActiveClaims()
        outages = OutageTracker(self._events, time.monotonic)
        self._outcomes = OutcomeWriter(
            self._threads, process_id, self._active_claims, outages, self._events, written=lambda _: None
        )
        self._process = self._message_router.join(kind, self._events, options=settings.options, client=self._client)
        self._worker.set_process(self._process)
        await self._worker.setup()

    async def stop(self) -> None:
        """Tear the user's worker down, and leave."""
        await self._process.finish(BACKGROUND_WITHIN)
        try:
            await self._worker.teardown()
        finally:
            await self._threads.run(end_process, self._claimer.process_id, "stopped")

    async def claim(self) -> Task | None:
        """The next task that may be run; None when there is none.

        Nothing else runs here, so one that must run alone may be taken too, and comes first.

        Raises:
            DatabaseUnavailable: what it won, if anything, is found by the next claim.
        """
        if self._pending_token is not None:
            found = await self._threads.read(claimed_by_token, self._claimer, self._pending_token)
            self._pending_token = None
            if found:
                return found[0]
        for quarantined in (True, False):
            self._pending_token = new_token()
            won = await self._threads.run(
                claim, self._claimer, token=self._pending_token, limit=1, quarantined=quarantined
            )
            self._pending_token = None
            if won.tasks:
                return won.tasks[0]
            if limited := await self._claim_limited(quarantined=quarantined):
                return limited
        return None

    async def _claim_limited(self, *, quarantined: bool) -> Task | None:
        claimable = await self._threads.read(find_claimable, self._claimer)
        ranks = {**claimable.quarantined, **claimable.quarantined_limited} if quarantined else claimable.limited
        for queue in sorted(ranks, key=ranks.__getitem__):
            self._pending_token = new_token()
            turn = await self._threads.run(
                claim_limited, self._claimer, queue, token=self._pending_token, limit=1, quarantined=quarantined
            )
            self._pending_token = None
            if turn.tasks:
                return turn.tasks[0]
        return None

    async def run(self, task: Task) -> Task:
        """One attempt, with its outcome written; the row as it is then.

        Cancelled, it ends the attempt as a process that stops does: the task is given back.
        """
        progress: list[TaskProgress] = []
        ctx = Context(
            task,
            node=self._node.name,
            options=self._worker.settings.options,
            report=progress.append,
            enqueue=self._client.aio.enqueue,
            client=self._client,
            process=self._worker.current_process,
        )
        execution = make_execution(self._worker, ctx, self._events, until_finish=seconds_until_finish(task))
        running = asyncio.ensure_future(self._run_attempt(task, execution, progress))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            execution.end(StopReason.STOPPING)
            await asyncio.wait([running])
            raise
        await self._message_router.wait_until_idle()
        return await self._threads.read(find_task, task.id) or task

    async def _run_attempt(self, task: Task, execution: Execution, progress: list[TaskProgress]) -> None:
        attempt = ActiveAttempt(task, time.monotonic())
        attempt.execution = execution
        self._active_claims.end_claim(0, [attempt.held])
        self._events.emit(AttemptStarted(task_id=task.id, queue=task.queue, name=task.name, number=task.attempts + 1))
        attempt.outcome = await execution.outcome()
        if progress:
            with suppress(DatabaseUnavailable):
                await self._threads.run(report_progress, {attempt.held: progress[-1]})
        attempt.seconds = time.monotonic() - attempt.since
        self._outcomes.add(attempt)
        await self._outcomes.wait_until_written()
        if len(self._active_claims):
            raise RuntimeError(f"the outcome of task {task.id} could not be written")
