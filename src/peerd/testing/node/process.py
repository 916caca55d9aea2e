"""The steps of a worker's process, one task at a time: claim, run, write the outcome.

The claim, the attempt and the writing are those of a worker. There is no touch: nothing rescues between two steps.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from peerd.domain.errors import DatabaseUnavailable, NodeNameTaken
from peerd.domain.task import Task
from peerd.operate.client import Client
from peerd.runtime.observability.events import AttemptStarted, EventBus
from peerd.store.connection.database import DatabaseThreads
from peerd.store.connection.outages import OutageTracker
from peerd.store.nodes import Node, find_node, heartbeat, new_incarnation, register_incarnation
from peerd.store.outcomes import TaskProgress, report_progress
from peerd.store.processes import ProcessCapabilities, end_earlier_processes, end_process, register_process
from peerd.store.statements import new_token
from peerd.store.take.backlog import find_claimable
from peerd.store.take.claimer import Claimer, ClaimResult
from peerd.store.take.claiming import LimitedClaim, claim, claim_limited, claimed_by_token
from peerd.store.tasks.pages import find_task
from peerd.testing.inline import make_execution, run_in_own_task
from peerd.testing.node.messages import InlineMessageRouter
from peerd.work.active_attempt import ActiveAttempt, seconds_until_finish
from peerd.work.active_claims import ActiveClaims
from peerd.work.attempt_execution import Execution
from peerd.work.context import Context
from peerd.work.outcome_writer import OutcomeWriter
from peerd.work.task_worker import TaskWorker

BACKGROUND_WITHIN: Final = 1.0
"""Seconds that background work has to end when the node is left."""


async def register_node(threads: DatabaseThreads, name: str) -> Node:
    """Register a new incarnation of a node, in place of one that was left behind, as an agent does."""
    before = await threads.read(find_node, name)
    incarnation = new_incarnation()
    replaces = None if before is None else before.incarnation
    if await threads.run(register_incarnation, name, incarnation, replaces=replaces) is None:
        raise NodeNameTaken(name, None)
    node = await threads.run(heartbeat, name, incarnation)
    await threads.run(end_earlier_processes, node.id, incarnation)
    return node


class InlineProcess:
    """A process of a node that runs the tasks of one worker, when it is called."""

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
        """Register the process, and call the worker's ``setup``."""
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
        """Call the worker's ``teardown``, and end the process."""
        await self._process.finish(BACKGROUND_WITHIN)
        try:
            await self._worker.teardown()
        finally:
            await self._threads.run(end_process, self._claimer.process_id, "stopped")

    async def claim(self) -> Task | None:
        """The next task that may be run; None when there is none.

        Nothing else runs here, so a quarantined task may be taken too, and comes first.

        Raises:
            DatabaseUnavailable: a task that it won is found by the next claim.
        """
        if self._pending_token is not None:
            found = await self._threads.read(claimed_by_token, self._claimer, self._pending_token)
            self._pending_token = None
            if found:
                return found[0]
        for quarantined in (True, False):
            if task := await self._claim_by(claim, quarantined=quarantined):
                return task
            claimable = await self._threads.read(find_claimable, self._claimer)
            ranks = {**claimable.quarantined, **claimable.quarantined_limited} if quarantined else claimable.limited
            for queue in sorted(ranks, key=ranks.__getitem__):
                if task := await self._claim_by(claim_limited, queue, quarantined=quarantined):
                    return task
        return None

    async def _claim_by(
        self, operation: Callable[..., ClaimResult | LimitedClaim], *queue: str, quarantined: bool
    ) -> Task | None:
        token = self._pending_token = new_token()
        won = await self._threads.run(operation, self._claimer, *queue, token=token, limit=1, quarantined=quarantined)
        self._pending_token = None
        return won.tasks[0] if won.tasks else None

    async def run(self, task: Task) -> Task:
        """Run an attempt and write its outcome; return the row as it is then.

        If this is cancelled, the attempt is ended as in a process that stops: the task is released.
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
        await run_in_own_task(execution, self._run_attempt(task, execution, progress))
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
