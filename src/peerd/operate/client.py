"""The public client: enqueue tasks, read and change them; blocking here, awaitable below ``client.aio``."""

from __future__ import annotations

import asyncio
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
from peerd.operate.bulk import BulkOperations
from peerd.operate.diagnostics import Finding, examine
from peerd.operate.enqueuing import EnqueueOperations, enqueue_within
from peerd.operate.job import Job, poll_pauses, task_result
from peerd.operate.nodes import NodeOperations
from peerd.operate.operations import AsyncMode, BlockingMode, Mode, Query, operation
from peerd.operate.queues import LimitOperations, QueueOperations
from peerd.operate.request import EnqueueOptions, new_task
from peerd.operate.schedules import ScheduleOperations
from peerd.operate.tasks import TaskOperations
from peerd.store.connection.database import Database
from peerd.store.outcomes.recording import database_now

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session


class _ClientOperations(EnqueueOperations[Mode]):
    """The operations of both clients."""

    def __init__(self, mode: Mode) -> None:
        super().__init__(mode)
        self.tasks: TaskOperations[Mode] = TaskOperations(mode)
        self.bulk: BulkOperations[Mode] = BulkOperations(mode)
        self.queues: QueueOperations[Mode] = QueueOperations(mode)
        self.limits: LimitOperations[Mode] = LimitOperations(mode)
        self.nodes: NodeOperations[Mode] = NodeOperations(mode)
        self.schedules: ScheduleOperations[Mode] = ScheduleOperations(mode)

    @operation
    def now(self) -> Query[datetime]:
        """The time of the database's clock, the only one that decides anything."""
        return Query("read", database_now)

    @operation
    def examine(self, *, max_update: float = 30.0) -> Query[list[Finding]]:
        """Examine the database server's settings and the state of the cluster, as ``peerd doctor`` does.

        Args:
            max_update: seconds without a touch after which a running task counts as frozen.
        """
        return Query("read", examine, max_update)


class Client(_ClientOperations[BlockingMode]):
    """Access to the tasks of a cluster. Safe to use from several threads; create one and keep it.

    It connects at its first operation.

    Args:
        url: ``mysql://…``, ``postgresql://…`` or ``sqlite:///file``; or a `Database`, which its owner closes.
        pool_size: connections that are kept.
        secret: [cluster] secret, which signs its rings. Without it, nodes on MariaDB and MySQL poll, and nodes on
            PostgreSQL that have a secret accept one ring a second. Not needed on SQLite.

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
        super().__init__(BlockingMode(self.database, self.notifier))

    @classmethod
    def from_config(cls, path: str | Path | None = None) -> Self:
        """A client for the database that peerd.toml and the environment name.

        Args:
            path: of the peerd.toml; without it $PEERD_CONFIG, else the nearest here and in the folders above.

        Raises:
            ConfigError: the configuration is invalid; it lists all mistakes.
        """
        from peerd.config.reading.loading import load  # noqa: PLC0415 - a node's processes must not import it

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
        """Ring the doorbell for tasks that were written with raw SQL or by another library; it never waits or fails.

        `enqueue` and `enqueue_in` ring by themselves.

        Args:
            queues: names of queues; none means any.

        Raises:
            InvalidFilter: no queue can have such a name.
        """
        self.notifier.ring(tasks_available_in(validation.queue(name) for name in queues))

    @cached_property
    def aio(self) -> AioClient:
        """The same, awaitable."""
        return AioClient(AsyncMode(self._mode))

    def close(self) -> None:
        """Close all connections. Jobs of this client cannot be read any more."""
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
    """``client.aio``: the same names, awaitable. The database is called in threads."""

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
        task = job.update(await self.tasks.find(job.id))
        for pause in poll_pauses(job, timeout):
            await asyncio.sleep(pause)
            task = job.update(await self.tasks.find(job.id))
        return task

    async def result(self, job: Job, timeout: str | float | None = None) -> Any:  # noqa: ASYNC109 - as above
        """`Job.result`, awaited."""
        return task_result(await self.wait(job, timeout))

    def close(self) -> None:
        """End its threads; `Client.close` does it too."""
        self._mode.close()
