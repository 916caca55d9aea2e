"""The public client: enqueue tasks, read and change them; blocking here, awaitable below ``client.aio``."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterable
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from sqlalchemy.engine import URL, Connection

from peerd.domain.access import Actor, Right
from peerd.domain.errors import NotPermitted
from peerd.domain.quoting import Masker
from peerd.domain.ring import tasks_available_in
from peerd.domain.task import Call, Task
from peerd.doorbell.notifier import Notifier
from peerd.operate import validation
from peerd.operate.alerts import AlertOperations
from peerd.operate.audit import AuditOperations
from peerd.operate.buckets import BucketOperations, FileClassOperations
from peerd.operate.bulk import BulkOperations
from peerd.operate.diagnostics import Finding
from peerd.operate.disks import DiskOperations
from peerd.operate.enqueuing import EnqueueOperations, enqueue_within
from peerd.operate.files import FileOperations
from peerd.operate.job import Job, poll_pauses, task_result
from peerd.operate.nodes import NodeOperations
from peerd.operate.operations import AsyncMode, BlockingMode, Mode, Query, operation
from peerd.operate.overview import examine
from peerd.operate.queues import LimitOperations, QueueOperations
from peerd.operate.request import EnqueueOptions, new_task
from peerd.operate.schedules import ScheduleOperations
from peerd.operate.statistics import StatisticsOperations
from peerd.operate.tasks import TaskOperations
from peerd.operate.tokens import TokenOperations
from peerd.operate.users import UserOperations
from peerd.store.connection.database import Database
from peerd.store.outcomes import database_now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session

    from peerd.operate.remote.events import ClusterEvent, EventReader


SERVER_SCHEMES: Final = ("http://", "https://", "unix:")


class ClientOperations(EnqueueOperations[Mode]):
    """The operations of both clients."""

    def __init__(self, mode: Mode) -> None:
        super().__init__(mode)
        self.tasks: TaskOperations[Mode] = TaskOperations(mode)
        self.bulk: BulkOperations[Mode] = BulkOperations(mode)
        self.queues: QueueOperations[Mode] = QueueOperations(mode)
        self.limits: LimitOperations[Mode] = LimitOperations(mode)
        self.nodes: NodeOperations[Mode] = NodeOperations(mode)
        self.schedules: ScheduleOperations[Mode] = ScheduleOperations(mode)
        self.statistics: StatisticsOperations[Mode] = StatisticsOperations(mode)
        self.alerts: AlertOperations[Mode] = AlertOperations(mode)
        self.files: FileOperations[Mode] = FileOperations(mode)
        self.buckets: BucketOperations[Mode] = BucketOperations(mode)
        self.file_classes: FileClassOperations[Mode] = FileClassOperations(mode)
        self.disks: DiskOperations[Mode] = DiskOperations(mode)
        self.users: UserOperations[Mode] = UserOperations(mode)
        self.tokens: TokenOperations[Mode] = TokenOperations(mode)
        self.audit: AuditOperations[Mode] = AuditOperations(mode)

    @property
    def actor(self) -> Actor:
        """What the operations are done by: this program, unless `Client.acting_as` has named another actor."""
        actor: Actor = self._mode.blocking.actor
        return actor

    def _require_program(self) -> None:
        if not self._mode.blocking.is_unrestricted:
            raise NotPermitted(self.actor.name, "enqueue_in", f"it needs the right {Right.ENQUEUE} of a program")

    @operation(in_queues=True)
    def now(self) -> Query[datetime]:
        """The time of the database's clock, the only one that decides anything."""
        return Query("read", database_now)

    @operation
    def examine(self, *, max_update: float = 30.0) -> Query[list[Finding]]:
        """Examine the database server's settings and the state of the cluster, as ``peerd doctor`` does.

        Args:
            max_update: seconds without a touch after which a running task counts as frozen.
        """
        return Query("read", examine, max_update, self._masker)


class Client(ClientOperations[BlockingMode]):
    """Access to the tasks of a cluster. Safe to use from several threads; create one and keep it.

    It connects at its first operation.

    Args:
        url: of the database: ``mysql://…``, ``postgresql://…`` or ``sqlite:///file``, or a `Database`, which its owner
            closes; or of a server: ``http://…``, ``https://…`` or ``unix:/path`` (docs/remote.md).
        pool_size: connections that are kept, of the database.
        secret: [cluster] secret, which signs its rings. Without it, nodes on MariaDB and MySQL poll, and nodes on
            PostgreSQL that have a secret accept one ring a second. Not needed on SQLite, nor with a server.
        mask: keys whose values other actors than programs do not see in bodies, results and errors, and the audit log
            does not have: [access] mask.
        token: that the server takes.
        ca: a file of certificates that are trusted instead of the system's, of a server.
        timeout: seconds that an answer of a server may take.

    Raises:
        UnsupportedDatabase: an unknown database, or its driver is not installed.
        InvalidServer: the server's URL, or the token, cannot be one.

    >>> with Client("sqlite:////tmp/peerd-example-client.sqlite") as client:
    ...     job = client.enqueue("mail", name="greet", body={"to": "you"}, priority=20)
    ...     client.tasks.get(job.id).json
    {'to': 'you'}
    """

    def __init__(
        self,
        url: str | URL | Database,
        *,
        pool_size: int = 5,
        secret: str | None = None,
        mask: Iterable[str] = (),
        token: str | None = None,
        ca: str | Path | None = None,
        timeout: float | None = None,
    ) -> None:
        self._owner: Client | None = None
        """The client that this one is a view on, for another actor."""
        if is_server_url(url):
            super().__init__(_server_mode(str(url), token, ca, timeout))
            return
        if given := [name for name, value in (("token", token), ("ca", ca), ("timeout", timeout)) if value is not None]:
            raise TypeError(f"{given[0]} goes with the URL of a server, and this is a database's")
        database = url if isinstance(url, Database) else Database(url, pool_size=pool_size)
        notifier = Notifier(database, secret)
        super().__init__(BlockingMode(database, notifier, Masker(mask), owns_database=database is not url))

    @property
    def database(self) -> Database:
        """The database; raises `DatabaseRequired` where the client has a server."""
        self._mode.require_database("database")
        return self._mode.database

    @property
    def notifier(self) -> Notifier:
        """What rings; raises `DatabaseRequired` where the client has a server, which rings by itself."""
        self._mode.require_database("notifier")
        return self._mode.notifier

    @classmethod
    def from_config(cls, path: str | Path | None = None) -> Self:
        """A client for the database that peerd.toml and the environment name.

        Args:
            path: of the peerd.toml; without it $PEERD_CONFIG, else the nearest here and in the folders above.

        Raises:
            ConfigError: the configuration is invalid; it lists all mistakes.
        """
        from peerd.config.loading import load  # noqa: PLC0415 - a node's processes must not import it

        settings = load(None if path is None else Path(path))
        database = settings.database
        return cls(
            database.url, pool_size=database.pool_size, secret=settings.cluster.secret, mask=settings.access.mask
        )

    def acting_as(self, actor: Actor) -> Self:
        """This client for an actor: operations need the actor's rights, keep to the actor's queues, and are audited.

        It shares the connections, and need not be closed. What an actor may do is about operations: code that has the
        client has its ``database`` too.

        >>> from peerd import Actor, NotPermitted
        >>> with Client("sqlite:////tmp/peerd-example-acting.sqlite") as client:
        ...     viewer = client.acting_as(Actor.with_role("ann", "viewer"))
        ...     try:
        ...         viewer.queues.pause("video")
        ...     except NotPermitted as error:
        ...         print(error)
        'ann' must not do queues.pause: it needs the right operate
        """
        acting = copy.copy(self)
        acting.__dict__.pop("aio", None)
        acting._owner = self._owner or self  # noqa: SLF001 - its own
        ClientOperations.__init__(acting, self._mode.acting_as(actor))
        return acting

    def enqueue_in(self, connection: Connection | Session, what: Call | str, **options: Unpack[EnqueueOptions]) -> Job:
        """Write one task in the caller's own transaction: it commits with the business data, or not at all.

        Args:
            connection: a SQLAlchemy Connection or Session on the database of peerd's tables.
            what: as for `enqueue`.
            options: as for `enqueue`.

        Raises:
            InvalidTask, NodeNotFound: as `enqueue`; the transaction is as it was.
            NotPermitted: the client acts as an actor, whose enqueuing is audited in a transaction of its own.
            DatabaseRequired: the client has a server.
        """
        self._mode.require_database("enqueue_in")
        self._require_program()
        return enqueue_within(connection, new_task(what, **options), self._find_task, self.notifier)

    def ring(self, *queues: str) -> None:
        """Ring the doorbell for tasks that were written with raw SQL or by another library; it never waits or fails.

        `enqueue` and `enqueue_in` ring by themselves.

        Args:
            queues: names of queues; none means any.

        Raises:
            InvalidFilter: no queue can have such a name.
            DatabaseRequired: the client has a server.
        """
        self._mode.require_database("ring")
        self.notifier.ring(tasks_available_in(validation.queue(name) for name in queues))

    def events(
        self,
        *types: str,
        tasks: Sequence[int] = (),
        queues: Sequence[str] = (),
        statuses: Sequence[str] = (),
    ) -> Iterator[ClusterEvent]:
        """Events of the cluster as they happen: first the present state of what is wanted, then each change.

        It does not end. A stream that is lost is opened again, and goes on where it was.

        Args:
            types: ``task``, ``queue``, ``node``, ``alert``; none means all.
            tasks: of tasks, those of these ids.
            queues: of tasks, queues and alerts, those of these queues.
            statuses: of tasks, those of these statuses, and the change that leads out of them.

        Raises:
            ServerRequired: the client has no server; `tasks.recent` reads what has happened lately.
            DatabaseUnavailable, ServerRefused: at the iteration.
        """
        return iter(_event_reader(self._mode, types, tasks, queues, statuses))

    @cached_property
    def aio(self) -> AioClient:
        """This client with awaitable operations."""
        if self._owner is not None:
            return self._owner.aio.acting_as(self.actor)
        return AioClient(self._mode.make_async())

    def close(self) -> None:
        """Close all connections. Jobs of this client cannot be read any more."""
        if self._owner is not None:
            return
        if "aio" in self.__dict__:
            self.aio.close()
        self._mode.close()

    def __enter__(self) -> Self:
        """The client itself; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        return f"Client({self._mode.shown_url!r})"


class AioClient(ClientOperations[AsyncMode]):
    """``client.aio``: the same names, awaitable. The database is called in threads."""

    def acting_as(self, actor: Actor) -> AioClient:
        """`Client.acting_as`."""
        return AioClient(self._mode.acting_as(actor))

    async def enqueue_in(
        self, connection: AsyncConnection | AsyncSession, what: Call | str, **options: Unpack[EnqueueOptions]
    ) -> Job:
        """`Client.enqueue_in`, for an AsyncConnection or AsyncSession."""
        self._mode.blocking.require_database("enqueue_in")
        self._require_program()
        notifier = self._mode.blocking.notifier
        return await connection.run_sync(enqueue_within, new_task(what, **options), self._find_task, notifier)

    def events(
        self,
        *types: str,
        tasks: Sequence[int] = (),
        queues: Sequence[str] = (),
        statuses: Sequence[str] = (),
    ) -> AsyncIterator[ClusterEvent]:
        """`Client.events`, for ``async for``."""
        from peerd.operate.remote.events import iterate_async  # noqa: PLC0415 - not in a node's processes

        return iterate_async(_event_reader(self._mode.blocking, types, tasks, queues, statuses))

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


def is_server_url(url: object) -> bool:
    """Whether a URL leads to a server, and not to a database.

    >>> is_server_url("https://video-1:8080"), is_server_url("mysql://video-1/peerd")
    (True, False)
    """
    return isinstance(url, str) and url.lower().startswith(SERVER_SCHEMES)


def _server_mode(url: str, token: str | None, ca: str | Path | None, timeout: float | None) -> BlockingMode:
    from peerd.operate.remote.address import TIMEOUT, ServerAddress  # noqa: PLC0415 - not in a node's processes
    from peerd.operate.remote.modes import ServerMode  # noqa: PLC0415

    seconds = TIMEOUT if timeout is None else timeout
    return ServerMode(ServerAddress(url, token, None if ca is None else Path(ca), seconds))


def _event_reader(
    mode: BlockingMode, types: Sequence[str], tasks: Sequence[int], queues: Sequence[str], statuses: Sequence[str]
) -> EventReader:
    from peerd.operate.remote.errors import ServerRequired  # noqa: PLC0415 - not in a node's processes
    from peerd.operate.remote.events import event_query  # noqa: PLC0415
    from peerd.operate.remote.modes import ServerMode  # noqa: PLC0415

    if not isinstance(mode, ServerMode):
        raise ServerRequired("events")
    return mode.open_events(event_query(types, tasks, queues, statuses))
