"""A Runner in the test's own process, with a real database in which answers can be lost."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from peerd import Client, Context, Queue, Status, Task, TaskWorker
from peerd.config.settings import WorkSettings
from peerd.runtime.observability.events import Event, EventBus
from peerd.store.take.claimer import Claimer
from peerd.testing import EventRecorder, FaultyDatabase, eventually_async
from peerd.work.attempt_log import LineCollector
from peerd.work.task_runner import Runner
from peerd.work.task_worker import QueueWorker
from tests.store.world import World

F = TypeVar("F", bound=Event)


class RunnerHarness:
    """The database, the events, and the runners that run."""

    def __init__(self, database: FaultyDatabase, world: World) -> None:
        self.database = database
        self.world = world
        self.events = EventRecorder()
        self.uncaught: list[dict[str, Any]] = []
        self._runners: list[tuple[Runner, asyncio.Task[None]]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.uncaught.append(context))

    def run(
        self,
        served: Queue | TaskWorker,
        claimer: Claimer | None = None,
        client: Client | None = None,
        lines: LineCollector | None = None,
        **settings: Any,
    ) -> Runner:
        """Start a runner for a queue's handlers, or for a worker of whole rows.

        With a client, they may enqueue; with lines, what they log is collected.
        """
        worker = QueueWorker([served]) if isinstance(served, Queue) else served
        given = {"queues": worker.queues, "poll_every": 0.05, "update": 0.1, "delay_ratio": 0.0, **settings}
        worker.settings = WorkSettings(**given)
        worker.events = EventBus(self.events)
        by = claimer or self.world.claimer(*worker.settings.queues, attempts_of=worker.attempts_by_handler())
        runner = Runner(worker, self.database, by, node="a", events=worker.events, client=client, lines=lines)
        self._runners.append((runner, asyncio.create_task(runner.run())))
        return runner

    async def stop(self, runner: Runner, grace: float = 10.0) -> None:
        """Stop a runner gracefully, and check that it ended without an exception."""
        await runner.stop(grace)
        for one, running in self._runners:
            if one is runner:
                await running

    async def end(self) -> None:
        self.database.heal()
        for runner, running in self._runners:
            async with asyncio.timeout(20):
                await runner.stop(0.0)
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    async def until(self, task_id: int, status: Status, within: float = 60.0) -> Task:
        """The task's row, once it has this status."""

        def task_with_status() -> Task:
            task = self.world.get(task_id)
            assert task.status is status, task
            return task

        return await eventually_async(task_with_status, timeout=within)

    def of(self, kind: type[F]) -> list[F]:
        """The events of one kind."""
        return self.events.of(kind)


class Gates:
    """A queue with a handler ``gated(key)`` that runs until its gate is opened, and a record of its calls."""

    def __init__(self) -> None:
        self.queue = Queue("q")
        self.began: list[str] = []
        self.cancelled: list[str] = []
        self._failing: set[str] = set()
        self._gates: dict[str, asyncio.Event] = {}
        self.queue.task(name="gated")(self._gated)

    async def _gated(self, ctx: Context, key: str = "") -> str:
        self.began.append(key)
        try:
            await self.gate(key).wait()
        except asyncio.CancelledError:
            self.cancelled.append(key)
            raise
        if key in self._failing:
            raise RuntimeError(f"{key} is set to fail")
        return key

    def gate(self, key: str) -> asyncio.Event:
        return self._gates.setdefault(key, asyncio.Event())

    def fail(self, *keys: str) -> None:
        """Open these gates; what has waited there fails."""
        self._failing.update(keys)
        self.open(*keys)

    def open(self, *keys: str) -> None:
        for key in keys:
            self.gate(key).set()
