"""A node inside the test: real tables, real claims, real outcomes, and nothing runs unless the test calls for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, closing
from functools import cached_property
from typing import Any, Final, Self, TypeVar, Unpack

from sqlalchemy.engine import URL

from peerd.config.parsing import parse_section
from peerd.config.settings import ManagerSettings, WorkerSettings
from peerd.domain.task import Call, Task
from peerd.manager.chores import CHORES
from peerd.operate.client import AioClient, Client
from peerd.operate.job import Job
from peerd.operate.operations import AsyncMode
from peerd.operate.request import EnqueueOptions
from peerd.runtime.observability.events import ChoreRan, EventBus
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.nodes import Node, deactivate_silent, deregister_node, heartbeat
from peerd.store.rescue import rescue_untouched
from peerd.store.schema.migrate import migrate
from peerd.testing.clock import Clock, ClockNotGovernable
from peerd.testing.event_recorder import EventRecorder
from peerd.testing.faulty_database import FaultyDatabase, TemporaryDatabase
from peerd.testing.node.messages import InlineMessageRouter
from peerd.testing.node.process import InlineProcess, register_node
from peerd.work.handlers import Queue
from peerd.work.task_worker import QueueWorker, TaskWorker
from peerd.work.worker import work_settings_of

T = TypeVar("T")

INLINE_SETTINGS: Final = ("delay_ratio", "max_attempts", "options", "timeout")
"""Settings of a worker that have an effect where nothing runs at the same time."""
MAX_ATTEMPTS: Final = 1000
"""Attempts after which `run_all` raises, because its tasks seem to have no end."""
BEFORE_A_CLAIM: Final = ("stage scheduled", "stage failures", "postpone", "expire")
"""Chores that decide which tasks may be claimed."""


class InlineNode:
    """Runs the tasks of queues and workers in the test itself, when the test calls for it.

    Enqueuing, claiming, retrying, unique keys, hooks, timeouts and outcomes are those of a real node, on a real
    database; so is the order of claims. The differences: one task runs at a time, no process is started except for
    handlers with ``process=True``, nothing is touched meanwhile, and time stands still until the test advances it.

    Use it as a context manager: ``with`` in plain tests; ``async with`` in coroutines, where everything that runs
    tasks is below ``node.aio``.

    Args:
        serves: queues with their handlers, and `TaskWorker` objects; each worker claims as a process of its own would.
        eager: ``node.client.enqueue`` runs at once what is due, and returns afterwards.
        database: an address, or a `Database`, which its owner closes; without it, a SQLite file that is deleted at
            the end. Its tables are made if they are not there.
        clock: governs the database; without it, one that begins at the first of January 2026. On PostgreSQL there is
            none, and time passes.
        name: the node's name.
        settings: delay_ratio, max_attempts, timeout, options, as in ``[workers.NAME]``.

    Attributes:
        client: a `Client` on the database, while the node is entered.
        database: the database, as long.
        events: what happened; see `EventRecorder`.

    >>> from peerd import Queue, Retry
    >>> mail = Queue("mail")
    >>> @mail.task
    ... async def send(ctx, to: str) -> str:
    ...     return f"sent to {to}" if ctx.task.attempts else Retry("5m", "no answer")
    >>> with InlineNode(mail) as node:
    ...     job = node.client.enqueue(send.with_args("you"))
    ...     print([task.status.value for task in node.run_all()], node.run_one())
    ...     node.clock.advance("5m")
    ...     print([task.status.value for task in node.run_all()], job.result(timeout=0))
    ['failure'] None
    ['done'] sent to you
    """

    def __init__(
        self,
        *serves: Queue | TaskWorker,
        eager: bool = False,
        database: str | URL | Database | None = None,
        clock: Clock | None = None,
        name: str = "inline",
        **settings: Any,
    ) -> None:
        self.name = name
        self.events = EventRecorder()
        self.client: Client
        self.database: Database
        self._workers = _make_workers(serves, settings)
        self._eager = eager
        self._database_given = database
        self._clock = clock
        self._exit_stack = AsyncExitStack()
        self._loop: asyncio.Runner | None = None
        self._steps: InlineSteps | None = None

    @property
    def aio(self) -> InlineSteps:
        """`run_one`, `run_all` and `run_chores`, awaitable.

        Raises:
            RuntimeError: the node was not entered by ``async with``.
        """
        if self._steps is None or self._loop is not None:
            raise RuntimeError("node.aio is for async with InlineNode(…) as node; below with, call node.run_all()")
        return self._steps

    @property
    def clock(self) -> Clock:
        """The clock that its database reads.

        Raises:
            ClockNotGovernable: it is PostgreSQL.
        """
        if self._clock is None:
            raise ClockNotGovernable(self.database.name)
        return self._clock

    @property
    def faults(self) -> FaultyDatabase:
        """The database, where faults can be added to it.

        Raises:
            TypeError: you gave one to which they cannot.
        """
        if not isinstance(self.database, FaultyDatabase):
            raise TypeError(f"{self.database!r} does what it is asked to: give InlineNode a FaultyDatabase")
        return self.database

    def run_one(self) -> Task | None:
        """Claim the next task that is due, and run it; its row after that, or None when nothing is due."""
        return self._run(lambda steps: steps.run_one())

    def run_all(self, limit: int = MAX_ATTEMPTS) -> list[Task]:
        """Run until nothing is due, also what is enqueued meanwhile; the rows, each as it was after its attempt.

        Raises:
            RuntimeError: after ``limit`` attempts there was still something due.
        """
        return self._run(lambda steps: steps.run_all(limit))

    def run_chores(self) -> None:
        """Do once what a manager does periodically: rescue untouched tasks, purge those that ended long ago, and so on.

        The chores that decide what may be claimed also run before each claim.
        """
        self._run(lambda steps: steps.run_chores())

    def __enter__(self) -> Self:
        """Begin: register the node, call each worker's ``setup``."""
        self._loop = asyncio.Runner()
        try:
            self._loop.run(self._start())
        except BaseException:
            self._loop.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End: call each worker's ``teardown``, close the database."""
        assert self._loop is not None
        with closing(self._loop):
            self._loop.run(self._exit_stack.aclose())

    async def __aenter__(self) -> Self:
        """Begin; see ``with``."""
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End; see ``with``."""
        await self._exit_stack.aclose()

    async def _start(self) -> None:
        async with AsyncExitStack() as exit_stack:
            plain = self._open(exit_stack)
            await asyncio.to_thread(migrate, self.database)
            threads = DatabaseThreads(self.database, threads=2)
            exit_stack.callback(threads.close)
            node = await register_node(threads, self.name)
            exit_stack.push_async_callback(threads.run, deregister_node, node.name, node.incarnation or "")
            events, router = EventBus(self.events), InlineMessageRouter(node.name)
            processes = [InlineProcess(worker, threads, node, plain, router, events) for worker in self._workers]
            for process in processes:
                await process.start()
                exit_stack.push_async_callback(process.stop)
            if isinstance(self.database, FaultyDatabase):
                exit_stack.callback(self.database.heal)
            self._steps = InlineSteps(node, processes, threads, events)
            self._exit_stack = exit_stack.pop_all()

    def _open(self, exit_stack: AsyncExitStack) -> Client:
        """Open the database, with its clock and its clients; the one that handlers get."""
        given = self._database_given
        if isinstance(given, Database):
            self.database = given
        else:
            self.database = TemporaryDatabase() if given is None else FaultyDatabase(given)
            exit_stack.callback(self.database.close)
        if self._clock is not None or self.database.name != "postgresql":
            self._clock = self._clock or Clock()
            self._clock.govern(self.database)
        plain = Client(self.database)
        self.client = EagerClient(self.database, self._run_due, self._run_due_async) if self._eager else plain
        for client in (plain, self.client):
            exit_stack.callback(client.close)
        return plain

    def _run_due(self) -> None:
        """Run what is due; what a handler itself enqueues is run after it."""
        if self._steps is not None and not self._steps.running:
            self.run_all()

    async def _run_due_async(self) -> None:
        if self._steps is not None and not self._steps.running:
            await self.aio.run_all()

    def _run(self, step: Callable[[InlineSteps], Coroutine[Any, Any, T]]) -> T:
        """Do it in the node's own event loop."""
        if self._loop is None or self._steps is None:
            raise RuntimeError("enter it first: with InlineNode(…) as node; below async with, await node.aio.run_all()")
        if _is_in_event_loop():
            raise RuntimeError("an event loop runs here: write async with InlineNode(…), and await node.aio.run_all()")
        return self._loop.run(step(self._steps))


class InlineSteps:
    """``node.aio``: the steps of an `InlineNode`, awaitable, in the test's own event loop."""

    def __init__(
        self, node: Node, processes: Sequence[InlineProcess], threads: DatabaseThreads, events: EventBus
    ) -> None:
        self.running = False
        """Whether a task is being run."""
        self._node = node
        self._processes = processes
        self._threads = threads
        self._events = events
        self._settings = ManagerSettings()

    async def run_one(self) -> Task | None:
        """`InlineNode.run_one`, awaited."""
        await self._run_chores(BEFORE_A_CLAIM)
        self.running = True
        try:
            for process in self._processes:
                if task := await process.claim():
                    return await process.run(task)
        finally:
            self.running = False
        await self._write_heartbeat()  # it raises for a node that another one has replaced, which claims nothing
        return None

    async def run_all(self, limit: int = MAX_ATTEMPTS) -> list[Task]:
        """`InlineNode.run_all`, awaited."""
        ran: list[Task] = []
        while task := await self.run_one():
            ran.append(task)
            if len(ran) >= limit:
                last = f"the last was task {task.id} ({task.queue} {task.name}), which is {task.status} now"
                raise RuntimeError(f"{limit} attempts were run, and more may be due: {last}. Time stands still here")
        return ran

    async def run_chores(self) -> None:
        """`InlineNode.run_chores`, awaited."""
        await self._write_heartbeat()
        await self._threads.run(deactivate_silent, self._settings.inactive_after)
        while await self._threads.run(rescue_untouched, self._settings.max_update, self._settings.batch):
            pass
        await self._run_chores([chore.name for chore in CHORES])

    async def _write_heartbeat(self) -> None:
        await self._threads.run(heartbeat, self._node.name, self._node.incarnation or "")

    async def _run_chores(self, names: Sequence[str]) -> None:
        for chore in CHORES:
            if chore.name in names:
                total = count = await self._threads.run(chore.run, *chore.arguments(self._settings))
                while count == self._settings.batch:
                    count = await self._threads.run(chore.run, *chore.arguments(self._settings))
                    total += count
                if total:
                    self._events.emit(ChoreRan(chore=chore.name, count=total))


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _make_workers(serves: Sequence[Queue | TaskWorker], settings: Mapping[str, Any]) -> list[TaskWorker]:
    """A worker for all queues, and the given ones, with settings as a section of peerd.toml gives them.

    Raises:
        TypeError: a setting that has no effect here.
    """
    if unknown := sorted(set(settings) - set(INLINE_SETTINGS)):
        raise TypeError(f"InlineNode has no setting {unknown[0]!r}; it has {', '.join(INLINE_SETTINGS)}")
    given = parse_section(WorkerSettings, settings)
    queues = [served for served in serves if isinstance(served, Queue)]
    workers = [served for served in serves if isinstance(served, TaskWorker)]
    workers = [QueueWorker(queues), *workers] if queues else workers
    for worker in workers:
        worker.settings = work_settings_of(worker, given)
    return workers


class EagerClient(Client):
    """A `Client` whose ``enqueue`` runs all tasks that are due."""

    def __init__(
        self, database: Database, run_due: Callable[[], object], run_due_async: Callable[[], Awaitable[object]]
    ) -> None:
        super().__init__(database)
        self._run_due = run_due
        self._run_due_async = run_due_async

    def enqueue(
        self, what: Call | str, *, idempotency_key: str | None = None, **options: Unpack[EnqueueOptions]
    ) -> Job:
        """`Client.enqueue`, and run all tasks that are due."""
        job = super().enqueue(what, idempotency_key=idempotency_key, **options)
        self._run_due()
        return job

    def enqueue_many(
        self, what: Iterable[Call | str], *, idempotency_key: str | None = None, **options: Unpack[EnqueueOptions]
    ) -> list[Job]:
        """`Client.enqueue_many`, and run all tasks that are due."""
        jobs = super().enqueue_many(what, idempotency_key=idempotency_key, **options)
        self._run_due()
        return jobs

    @cached_property
    def aio(self) -> AioClient:
        """This client with awaitable operations."""
        return EagerAioClient(AsyncMode(self._mode), self._run_due_async)


class EagerAioClient(AioClient):
    """``client.aio`` of an `EagerClient`."""

    def __init__(self, mode: AsyncMode, run_due: Callable[[], Awaitable[object]]) -> None:
        super().__init__(mode)
        self._run_due = run_due

    async def enqueue(
        self, what: Call | str, *, idempotency_key: str | None = None, **options: Unpack[EnqueueOptions]
    ) -> Job:
        """`AioClient.enqueue`, and run all tasks that are due."""
        job = await super().enqueue(what, idempotency_key=idempotency_key, **options)
        await self._run_due()
        return job

    async def enqueue_many(
        self, what: Iterable[Call | str], *, idempotency_key: str | None = None, **options: Unpack[EnqueueOptions]
    ) -> list[Job]:
        """`AioClient.enqueue_many`, and run all tasks that are due."""
        jobs = await super().enqueue_many(what, idempotency_key=idempotency_key, **options)
        await self._run_due()
        return jobs
