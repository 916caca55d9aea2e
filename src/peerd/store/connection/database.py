"""One database, and how an operation runs on it.

Every operation of the store is a plain function over a synchronous SQLAlchemy ``Connection``. `Database.run` calls it
with one, in a transaction of its own, and repeats it when the database rolled it back. Applications can call the same
functions inside their own transactions; there nothing is repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import count
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar, TypeVarTuple

from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import DBAPIError, NoSuchModuleError

from peerd.config.address import hosts_of, normalise_url
from peerd.domain.errors import (
    DatabaseBusy,
    DatabaseRefused,
    DatabaseUnavailable,
    PeerdError,
    RowLocked,
    UnsupportedDatabase,
)
from peerd.domain.pacing import exponential_backoff
from peerd.runtime.concurrency import ThreadPool, register_fork_hooks
from peerd.store.connection import database_errors, mysql, postgresql, sqlite
from peerd.store.connection.mysql import may_lag
from peerd.store.connection.pools import Engines, OpenedConnections, was_idle, without_liveness_check
from peerd.store.connection.postgresql import SETTINGS, transaction_with_settings
from peerd.store.connection.sqlite import TURN, SqliteTransactions, writer_lock_of
from peerd.store.schema.types import is_mariadb

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Operation = Callable[Concatenate[Connection, P], T]

TRIES: Final = 10
FIRST_PAUSE: Final = 0.01
"""Seconds; doubled after each try, so that ten tries take about five seconds on average."""
MAX_RETRY_SECONDS: Final = 60.0
"""Seconds after which nothing is repeated: one try that waits for a lock may take 30 to 50."""
_OUTCOMES: Final[dict[type[PeerdError], str]] = {
    DatabaseUnavailable: "unavailable",
    DatabaseRefused: "unavailable",
    DatabaseBusy: "busy",
    RowLocked: "locked",
}
MINIMUM_VERSIONS: Final = {"mysql": (8, 0, 19), "mariadb": (10, 6), "postgresql": (12,), "sqlite": (3, 35)}
"""The first versions with stored generated columns, and with SKIP LOCKED and RETURNING where these are used."""


class DatabaseObserver(Protocol):
    """What a database calls with each operation; from any thread."""

    def ended(self, outcome: str, seconds: float) -> None:
        """An operation has ended: done, unavailable, busy, locked or failed."""

    def repeated(self) -> None:
        """An operation that was rolled back is repeated."""


class Database:
    """A database and this process's connections to it. Thread-safe, and usable after a fork.

    A forked process opens connections of its own and leaves those of its parent alone. On SQLite, whose files must not
    be open across a fork, idle connections are closed before it. Do not fork in the middle of a transaction.

    Args:
        url: ``mysql://…``, ``postgresql://…`` or ``sqlite:///file``.
        pool_size: connections that are kept; as many again are opened when all are busy.
        response_timeout: seconds that a statement may take on MySQL before the server counts as away; a minute by
            default.

    Raises:
        UnsupportedDatabase: the database is not supported, or its driver is not installed.

    >>> database = Database("sqlite:////tmp/peerd-example.sqlite")
    >>> database.run(lambda connection: connection.exec_driver_sql("select 1").scalar())
    1
    >>> database.close()
    """

    def __init__(self, url: str | URL, *, pool_size: int = 5, response_timeout: int | None = None) -> None:
        self.url = with_driver(url)
        self.engines = open_engines(self.url, pool_size, response_timeout=response_timeout)
        self.engine = self.engines.transactions
        self._on_sqlite = SqliteTransactions(self.engines.short)
        self.observer: DatabaseObserver | None = None
        """Measures each operation."""
        self._opened = OpenedConnections(self.engines.distinct())
        register_fork_hooks(self)

    @property
    def name(self) -> str:
        """Which database: mysql, postgresql or sqlite."""
        return self.engine.dialect.name

    @property
    def is_single_writer(self) -> bool:
        """Whether all other writers wait while one writes."""
        return self.name == "sqlite"

    def __repr__(self) -> str:
        return f"Database({self.url.render_as_string(hide_password=True)!r})"

    def run(self, operation: Operation[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation in a transaction of its own, and commit it.

        It is repeated after a short random pause when the database rolled it back (deadlock, lock time-out,
        serialization failure, busy, a cancelled statement), and at once on another connection when an idle one turns
        out to be closed before the commit was sent. It is not repeated when the reply to the commit was lost: only the
        operation can find out whether it was done.

        Raises:
            DatabaseUnavailable: the database could not be reached, or its reply was lost.
            DatabaseRefused: it answered, and refused; the error has the remedy.
            DatabaseBusy: it rolled back each try, for about a minute at most.
        """
        return self._run_with_retries(partial(self._run_in_transaction, self.engine, operation, *args, **kwargs))

    def run_short(self, operation: Operation[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation whose statements may be committed one by one; otherwise as `run`.

        This saves the round trips that begin and end a transaction. The operation must be repeatable after some of its
        statements were committed, and write only values that the database made or that were checked: SQLite, where all
        statements are one transaction, checks no CHECK, which takes a tenth of the time of a claim; PostgreSQL plans
        them once, without regard to the values.

        Raises:
            RowLocked: another session has held a row for more than a second. Earlier statements may be committed.
            DatabaseUnavailable, DatabaseRefused, DatabaseBusy: see `run`.
        """
        if self.is_single_writer:
            whole = partial(self._on_sqlite.run, lambda connection: operation(connection, *args, **kwargs))
            return self._run_with_retries(whole)
        return self._run_with_retries(partial(self._run_short, operation, *args, **kwargs), waits_for_locks=False)

    def run_group(
        self, operation: Callable[[Connection, *Ts], T], /, *args: *Ts, durable: bool = True, waits: bool = True
    ) -> T:
        """Run an operation that does the work of many queue clients, in a transaction of its own, as `run`.

        It costs little beside its statements; for the values that they write see `run_short`.

        Args:
            operation: a function over a connection.
            args: its other arguments.
            durable: whether the commit survives a failure of power; on MySQL it does in any case.
            waits: whether to wait for another writer of SQLite; an event loop cannot. It is done once then.

        Raises:
            RowLocked: another session has held a row for more than a second; nothing was done.
            WriterBusy: there is another writer, and it was not to be waited for; nothing was done.
            DatabaseUnavailable, DatabaseRefused, DatabaseBusy: see `run`.
        """
        if not waits:
            return self._on_sqlite.run(operation, *args, durable=durable, turn=TURN, waits=False)
        if self.is_single_writer:
            return self._run_with_retries(partial(self._on_sqlite.run, operation, *args, durable=durable, turn=TURN))
        engine = self.engines.groups if durable else self.engines.undurable_groups
        group = partial(self._run_in_transaction, engine, operation, *args)
        return self._run_with_retries(group, waits_for_locks=False)

    def read(self, operation: Operation[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation that only reads; on SQLite it reads one snapshot and does not wait for the writer.

        On servers each of its statements reads a snapshot of its own, as under READ COMMITTED.

        Raises:
            DatabaseUnavailable: see `run`.
        """
        return self._run_with_retries(partial(self._read, operation, *args, **kwargs))

    def may_lag(self) -> bool:
        """Whether a read may lack recent commits, because there are, or may be, several servers.

        Raises:
            DatabaseUnavailable: see `run`.
        """
        return len(hosts_of(self.url)) > 1 or self.read(may_lag)

    def close(self) -> None:
        """Close all connections."""
        self.close_idle_connections()

    def close_idle_connections(self) -> None:
        """Close the connections that are not in use; others are opened when they are needed."""
        self._on_sqlite.close()
        for engine in self.engines.distinct():
            engine.dispose()

    def before_fork(self) -> None:
        """Called in a process that forks."""
        if self.is_single_writer:
            self.close()

    def reset_after_fork(self) -> None:
        """Called in a process that was forked."""
        self._on_sqlite.abandon()
        self._opened.abandon_inherited()

    def _run_in_transaction(self, engine: Engine, operation: Callable[..., T], *args: object, **kwargs: object) -> T:
        # The commit is outside of what may be repeated: without its reply it is unknown whether it took place.
        with (
            self._writer_turn(),
            _connect_without_ping(engine) as connection,
            connection.begin(),
            _repeatable_errors(connection, unchecked=True),
        ):
            if SETTINGS in connection.info:
                connection.exec_driver_sql(connection.info[SETTINGS])
            return operation(connection, *args, **kwargs)

    def _run_short(self, operation: Callable[..., T], *args: object, **kwargs: object) -> T:
        with self.engines.short.connect() as connection, _repeatable_errors(connection):
            if SETTINGS not in connection.info:
                return operation(connection, *args, **kwargs)
            with transaction_with_settings(connection):
                return operation(connection, *args, **kwargs)

    def _read(self, operation: Callable[..., T], *args: object, **kwargs: object) -> T:
        with (
            _connect_without_ping(self.engines.reads) as connection,
            _repeatable_errors(connection, unchecked=True),
        ):
            return operation(connection, *args, **kwargs)

    def _writer_turn(self) -> AbstractContextManager[None]:
        """On SQLite the lock of this process's writers; servers have locks of their own."""
        return writer_lock_of(self.url.database or "").hold() if self.is_single_writer else nullcontext()

    def _run_with_retries(self, attempt: Callable[[], T], *, waits_for_locks: bool = True) -> T:
        if self.observer is None:
            return self._repeat_while_rolled_back(attempt, waits_for_locks=waits_for_locks)
        began, outcome = time.monotonic(), "failed"
        try:
            result = self._repeat_while_rolled_back(attempt, waits_for_locks=waits_for_locks)
            outcome = "done"
            return result
        except PeerdError as error:
            outcome = _OUTCOMES.get(type(error), outcome)
            raise
        finally:
            self.observer.ended(outcome, time.monotonic() - began)

    def _repeat_while_rolled_back(self, attempt: Callable[[], T], *, waits_for_locks: bool) -> T:
        began = time.monotonic()
        for number in count():
            try:
                with translated_errors():
                    return attempt()
            except _StaleConnection:
                continue  # the next connection is a new one: SQLAlchemy discards all of the pool
            except Exception as error:
                if not (database_errors.was_rolled_back(error) or isinstance(error, _StatementCancelled)):
                    raise
                seconds = time.monotonic() - began
                if not waits_for_locks and database_errors.is_lock_timeout(error):
                    raise RowLocked(database_errors.driver_message(error), seconds) from error
                if number == TRIES - 1 or seconds > MAX_RETRY_SECONDS:
                    raise DatabaseBusy(database_errors.driver_message(error), seconds) from error
                if self.observer is not None:
                    self.observer.repeated()
                time.sleep(exponential_backoff(number + 1, base=FIRST_PAUSE, jitter=0.5))
        raise AssertionError("the last try returns or raises")


class _StatementCancelled(Exception):
    """A command or a time limit of the server cancelled a statement: it did nothing, and was not a commit."""


class _StaleConnection(Exception):
    """A connection was closed while it was idle: its operation did nothing."""


@contextmanager
def _connect_without_ping(engine: Engine) -> Iterator[Connection]:
    with without_liveness_check():
        opened = engine.connect()
    with opened as connection:
        yield connection


@contextmanager
def _repeatable_errors(connection: Connection, *, unchecked: bool = False) -> Iterator[None]:
    """Raise `_StatementCancelled` and, on an idle connection that is used unchecked, `_StaleConnection`."""
    may_be_stale = unchecked and was_idle(connection)
    try:
        yield
    except DBAPIError as error:
        if database_errors.was_cancelled(error):
            raise _StatementCancelled(database_errors.driver_message(error)) from error
        if may_be_stale and error.connection_invalidated:
            raise _StaleConnection from error
        raise


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise peerd's own errors where the driver reports that a database is away, or refuses with a known remedy."""
    try:
        yield
    except Exception as error:
        database_errors.clear_traceback_frames(error)
        if isinstance(error, RuntimeError) and "'cryptography' package is required" in str(error):
            raise UnsupportedDatabase("PyMySQL needs it to log in: pip install 'peerd[mysql]'") from error
        remedy = database_errors.refusal_remedy(error)
        if remedy is not None:
            raise DatabaseRefused(database_errors.driver_message(error), remedy) from error
        if database_errors.is_away(error):
            raise DatabaseUnavailable(database_errors.driver_message(error)) from error
        raise


class DatabaseThreads(ThreadPool):
    """A database for an event loop: each operation runs on one of a few threads.

    Args:
        database: it is not closed with the threads.
        threads: operations that can run at the same time; each has a connection.
    """

    def __init__(self, database: Database, threads: int = 4) -> None:
        self.database = database
        super().__init__(threads, "peerd-database")

    async def run(self, operation: Operation[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """`Database.run`, awaited."""
        return await self.call(partial(self.database.run, operation, *args, **kwargs))

    async def run_short(self, operation: Operation[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """`Database.run_short`, awaited."""
        return await self.call(partial(self.database.run_short, operation, *args, **kwargs))

    async def read(self, operation: Operation[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """`Database.read`, awaited."""
        return await self.call(partial(self.database.read, operation, *args, **kwargs))


# ---------------------------------------------------------------- engines


def with_driver(url: str | URL) -> URL:
    """A database's URL with the driver that peerd uses.

    Raises:
        UnsupportedDatabase: peerd does not support this database.

    >>> str(with_driver("postgres://peerd@db/peerd"))
    'postgresql+psycopg://peerd@db/peerd'
    """
    text = url.render_as_string(hide_password=False) if isinstance(url, URL) else url
    try:
        return make_url(normalise_url(text))
    except ValueError as error:
        raise UnsupportedDatabase(str(error)) from None


def open_engines(url: URL, pool_size: int, *, response_timeout: int | None = None) -> Engines:
    """The engines for a URL. Nothing connects yet.

    Args:
        url: from `with_driver`.
        pool_size: connections that all engines together keep.
        response_timeout: seconds that a statement on MySQL may take, `RESPONSE_TIMEOUT` by default. On PostgreSQL,
            TCP keepalives detect a lost server, however long a statement takes.

    Raises:
        UnsupportedDatabase: its driver is not installed; the error names the extra to install.
    """
    try:
        match url.get_backend_name():
            case "mysql" | "mariadb":
                return mysql.open_engines(url, pool_size, response_timeout=response_timeout)
            case "postgresql":
                return postgresql.open_engines(url, pool_size)
            case _:
                return sqlite.open_engines(url, pool_size)
    except (ImportError, NoSuchModuleError) as error:
        extra = "postgresql" if url.get_backend_name() == "postgresql" else "mysql"
        raise UnsupportedDatabase(
            f"the driver for {url.drivername} is missing ({error}): pip install 'peerd[{extra}]'"
        ) from error


def require_version(connection: Connection) -> None:
    """Check the version of the database.

    Raises:
        UnsupportedDatabase: it is too old; the error says which version is needed.
    """
    dialect = connection.dialect
    name = "mariadb" if is_mariadb(dialect) else dialect.name
    found = getattr(dialect, "server_version_info", None)
    if name == "sqlite":
        text = connection.exec_driver_sql("SELECT sqlite_version()").scalar_one()
        found = tuple(int(part) for part in text.split("."))
    if found is not None and found[:3] < MINIMUM_VERSIONS[name]:
        needed, given = (".".join(str(part) for part in parts) for parts in (MINIMUM_VERSIONS[name], found))
        raise UnsupportedDatabase(f"{name} {given} is too old: peerd needs {needed} or later")
