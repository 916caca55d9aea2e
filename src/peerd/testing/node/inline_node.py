"""A node inside the test: real tables, real claims, real outcomes, and nothing runs before it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, closing
from typing import Any, Self, TypeVar

from sqlalchemy.engine import URL

from peerd.domain.task import Task
from peerd.operate.client import Client
from peerd.runtime.observability.events import EventBus
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.nodes.nodes import deregister_node
from peerd.store.schema.migrate import migrate
from peerd.testing.clock import Clock, ClockNotGovernable
from peerd.testing.event_recorder import EventRecorder
from peerd.testing.faulty_database import FaultyDatabase
from peerd.testing.node.eager_client import EagerClient
from peerd.testing.node.messages import InlineMessageRouter
from peerd.testing.node.process import InlineProcess, register_node
from peerd.testing.node.steps import MAX_ATTEMPTS, InlineSteps
from peerd.testing.node.workers import make_workers
from peerd.testing.temporary_database import TemporaryDatabase
from peerd.work.handlers import Queue
from peerd.work.task_worker import TaskWorker

T = TypeVar("T")


class InlineNode:
    """Runs the tasks of queues and workers in the test itself, when the test says so.

    Enqueuing, claiming, retrying, unique keys, hooks, timeouts and outcomes are those of a real node, on a real
    database; so is the order of claims. What is not: one task runs at a time, no process is started but for handlers
    with ``process=True``, nothing is touched meanwhile, and time stands still until the test lets it pass.

    Use it as a context manager: ``with`` in plain tests; ``async with`` in coroutines, where everything that runs
    tasks is below ``node.aio``.

    Args:
        serves: queues with their handlers, and `TaskWorker` objects; each worker claims as a process of its own would.
        eager: ``node.client.enqueue`` runs at once what is due, and returns afterwards.
        database: an address, or a `Database`, which stays its owner's; without it, a SQLite file that is deleted at
            the end. Its tables are made if they are not there.
        clock: governs the database; without it, one that begins at the first of January 2026. On PostgreSQL there is
            none, and time passes.
        name: the node's name.
        settings: delay_ratio, max_attempts, timeout, options, as in ``[workers.NAME]``.

    Attributes:
        client: a `Client` on the database, while the node is entered.
        database: the database, as long.
        facts: what happened; see `EventRecorder`.

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
        self._workers = make_workers(serves, settings)
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
        """The database, where it can be told what goes wrong.

        Raises:
            TypeError: you gave one that cannot.
        """
        if not isinstance(self.database, FaultyDatabase):
            raise TypeError(f"{self.database!r} does what it is asked to: give InlineNode a FaultyDatabase")
        return self.database

    def run_one(self) -> Task | None:
        """Claim the next task that is due, and run it; its row as it is after that, or None when nothing is due."""
        return self._run(lambda steps: steps.run_one())

    def run_all(self, limit: int = MAX_ATTEMPTS) -> list[Task]:
        """Run until nothing is due, also what is enqueued meanwhile; the rows, each as it was after its attempt.

        Raises:
            RuntimeError: after ``limit`` attempts there was still something due.
        """
        return self._run(lambda steps: steps.run_all(limit))

    def run_chores(self) -> None:
        """Do once what a manager does all the time: rescue what nobody touches, purge what ended long ago, and so on.

        What decides what may be claimed is done before each claim anyhow.
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
            events = EventBus(self.events)
            message_router = InlineMessageRouter(node.name)
            processes = [
                InlineProcess(worker, threads, node, plain, message_router, events) for worker in self._workers
            ]
            for process in processes:
                await process.start()
                exit_stack.push_async_callback(process.stop)
            if isinstance(self.database, FaultyDatabase):
                exit_stack.callback(self.database.heal)
            self._steps = InlineSteps(node, processes, threads, events)
            self._exit_stack = exit_stack.pop_all()

    def _open(self, exit_stack: AsyncExitStack) -> Client:
        """Open the database, with its clock and its clients; the one that handlers get."""
        self.database = _database(self._database_given)
        if self.database is not self._database_given:
            exit_stack.callback(self.database.close)
        self._clock = _govern(self._clock, self.database)
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

    def _run(self, work: Callable[[InlineSteps], Coroutine[Any, Any, T]]) -> T:
        """Do it in the node's own event loop."""
        if self._loop is None or self._steps is None:
            raise RuntimeError("enter it first: with InlineNode(…) as node; below async with, await node.aio.run_all()")
        if _is_in_event_loop():
            raise RuntimeError("an event loop runs here: write async with InlineNode(…), and await node.aio.run_all()")
        return self._loop.run(work(self._steps))


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _database(given: str | URL | Database | None) -> Database:
    match given:
        case None:
            return TemporaryDatabase()
        case Database():
            return given
        case url:
            return FaultyDatabase(url)


def _govern(clock: Clock | None, database: Database) -> Clock | None:
    if clock is None and database.name == "postgresql":
        return None
    governing = Clock() if clock is None else clock
    governing.govern(database)
    return governing
