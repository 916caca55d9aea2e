"""The door for applications: enqueue, look, act; blocking here, awaitable below ``client.aio``."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from sqlalchemy.engine import URL, Connection

from peerd.domain.call import Call
from peerd.domain.ring import tasks_available_in
from peerd.domain.task import Task
from peerd.doorbell.notifier import Notifier
from peerd.operate import validation
from peerd.operate.diagnostics import Finding, examine
from peerd.operate.enqueuing import EnqueueOperations, FindTask, enqueue_within
from peerd.operate.job import Job, PollBackoff, task_result
from peerd.operate.limits import LimitOperations
from peerd.operate.nodes import NodeOperations
from peerd.operate.operations import AsyncMode, BlockingMode, Mode, Query, operation, read_query
from peerd.operate.queues import QueueOperations
from peerd.operate.request import EnqueueOptions, new_task
from peerd.operate.schedules import ScheduleOperations
from peerd.operate.tasks import TaskOperations
from peerd.store.connection.database import Database
from peerd.store.outcomes.recording import database_now

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session


class _ClientOperations(EnqueueOperations[Mode]):
    """What both colours have: enqueuing, the groups, the clock."""

    def __init__(self, mode: Mode, find_task: FindTask) -> None:
        super().__init__(mode, find_task)
        self.tasks: TaskOperations[Mode] = TaskOperations(mode)
        self.queues: QueueOperations[Mode] = QueueOperations(mode)
        self.limits: LimitOperations[Mode] = LimitOperations(mode)
        self.nodes: NodeOperations[Mode] = NodeOperations(mode)
        self.schedules: ScheduleOperations[Mode] = ScheduleOperations(mode)

    @operation
    def now(self) -> Query[datetime]:
        """What time it is by the database's clock, the only one that decides anything."""
        return read_query(database_now)

    @operation
    def examine(self, *, max_update: float = 30.0) -> Query[list[Finding]]:
        """What a doctor finds: in the database server's settings, and waiting in the cluster.

        Args:
            max_update: seconds without a touch after which a running task counts as frozen.
        """
        return read_query(examine, max_update)


class Client(_ClientOperations[BlockingMode]):
    """An application's door to the tasks of a cluster. Safe to use from several threads; make one and keep it.

    Nothing connects before the first question.

    Args:
        url: ``mysql://…``, ``postgresql://…`` or ``sqlite:///file``; or a `Database`, which stays its owner's to close.
        pool_size: connections that are kept.
        secret: [cluster] secret, with which it rings at the nodes on MariaDB and MySQL; without it they poll. On
            PostgreSQL it signs its rings; without it, one a second is heeded where the nodes have a secret. Not
            needed on SQLite.

    Raises:
        UnsupportedDatabase: an unknown database, or its driver is not installed.

    >>> with Client("sqlite:////tmp/peerd-example-client.sqlite") as client:
    ...     job = client.enqueue("mail", name="greet", body={"to": "you"}, priority=20)
    ...     client.tasks.get(job.id).json
    {'to': 'you'}
    """

    def __init__(self, url: str | URL | Database, *, pool_size: int = 5, secret: str | None = None) -> None:
        self._owns_database = not isinstance(url, Database)
        self.database = url if isinstance(url, Database) else Database(url, pool_size=pool_size)
        self.notifier = Notifier(self.database, secret)
        mode = BlockingMode(self.database, self.notifier)
        super().__init__(mode, TaskOperations(mode).find)

    @classmethod
    def from_config(cls, path: str | Path | None = None) -> Self:
        """A client for the database that peerd.toml and the environment name.

        Args:
            path: the peerd.toml; without it $PEERD_CONFIG, else the nearest here and in the folders above.

        Raises:
            ConfigError: the configuration cannot be used; it lists all that is wrong.
        """
        from peerd.config.reading.loading import load  # noqa: PLC0415 - a process that is told its settings reads none

        settings = load(None if path is None else Path(path))
        return cls(settings.database.url, pool_size=settings.database.pool_size, secret=settings.cluster.secret)

    def enqueue_in(self, connection: Connection | Session, what: Call | str, **options: Unpack[EnqueueOptions]) -> Job:
        """Write one task in the caller's own transaction: it commits with the business data, or not at all.

        Args:
            connection: a SQLAlchemy Connection or Session on the database of peerd's tables.
            what: as for `enqueue`.
            options: as for `enqueue`.

        Raises:
            InvalidTask, NodeNotFound: as `enqueue`; the transaction is as it was.
        """
        return enqueue_within(connection, new_task(what, **options), self._find_task, self.notifier)

    def ring(self, *queues: str) -> None:
        """Say that there is work, committed by whoever else: with raw SQL, or with another library.

        It never waits and never fails. `enqueue` and `enqueue_in` ring by themselves.

        Args:
            queues: names of queues; none: any.

        Raises:
            InvalidFilter: no queue can have such a name.
        """
        self.notifier.ring(tasks_available_in(validation.queue(name) for name in queues))

    @cached_property
    def aio(self) -> AioClient:
        """The same, awaitable."""
        return AioClient(AsyncMode(self._mode, threads=4), self._find_task)

    def close(self) -> None:
        """Close all connections. Jobs of this client can be looked at no more."""
        if "aio" in self.__dict__:
            self.aio.close()
        self.notifier.close()
        if self._owns_database:
            self.database.close()

    def __enter__(self) -> Self:
        """The client itself; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.database.url.render_as_string(hide_password=True)!r})"


class AioClient(_ClientOperations[AsyncMode]):
    """``client.aio``: the same names, awaitable. The event loop goes on while the database is asked."""

    async def enqueue_in(
        self, connection: AsyncConnection | AsyncSession, what: Call | str, **options: Unpack[EnqueueOptions]
    ) -> Job:
        """`Client.enqueue_in`, for an AsyncConnection or AsyncSession."""
        return await connection.run_sync(
            enqueue_within, new_task(what, **options), self._find_task, self._mode.notifier
        )

    async def refresh(self, job: Job) -> Job:
        """`Job.refresh`, awaited."""
        job.update(await self.tasks.find(job.id))
        return job

    async def wait(self, job: Job, timeout: str | float | None = None) -> Task:  # noqa: ASYNC109 - Job.wait's name
        """`Job.wait`, awaited."""
        backoff = PollBackoff(timeout)
        while not (task := job.update(await self.tasks.find(job.id))).finished:
            await backoff.sleep(task)
        return task

    async def result(self, job: Job, timeout: str | float | None = None) -> Any:  # noqa: ASYNC109 - as above
        """`Job.result`, awaited."""
        return task_result(await self.wait(job, timeout))

    def close(self) -> None:
        """Let its threads end; `Client.close` does it too."""
        self._mode.close()
