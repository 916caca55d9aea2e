"""One database, and how an operation runs on it.

Every operation of the store is a plain function over a synchronous SQLAlchemy ``Connection``. `Database.run` gives it
one, in a transaction of its own, and repeats it where the database undid it through no fault of its own. Applications
may call the same functions inside a transaction of theirs; there nothing is ever repeated.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import count
from typing import Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError

from peerd.config.address import hosts_of
from peerd.domain.backoff import exponential_backoff
from peerd.domain.errors import (
    DatabaseBusy,
    DatabaseConnectionRefused,
    DatabaseUnavailable,
    RowLocked,
    UnsupportedDatabase,
)
from peerd.runtime.concurrency.fork_hooks import register_fork_hooks
from peerd.store.connection import database_errors
from peerd.store.connection.engines import open_engines, with_driver
from peerd.store.connection.galera import may_lag
from peerd.store.connection.inherited_connections import OpenedConnections
from peerd.store.connection.pool_liveness import was_idle, without_liveness_check
from peerd.store.connection.sqlite_lock import writer_lock_of
from peerd.store.statements.autocommit import AutocommitConnection

P = ParamSpec("P")
T = TypeVar("T")

TRIES: Final = 10
FIRST_PAUSE: Final = 0.01
"""Seconds; doubled at each try, so that ten tries take about five seconds on average."""
MAX_RETRY_SECONDS: Final = 60.0
"""Seconds after which nothing is tried again: a try that waits for a lock may take 30 to 50 itself."""


class Database:
    """A database and the connections of this process to it. Safe to use from several threads, and after a fork.

    A forked process gets connections of its own; those of its parent stay the parent's. On SQLite, whose files must not
    be open across a fork, idle ones are closed before it. A fork is not for the middle of a transaction.

    Args:
        url: ``mysql://…``, ``postgresql://…`` or ``sqlite:///file``.
        pool_size: connections that are kept; as many again are opened when all are busy.
        response_timeout: seconds that a statement may take on MySQL, a minute if not given: after it, the server counts
            as away.

    Raises:
        UnsupportedDatabase: an unknown database, or its driver is not installed.

    >>> database = Database("sqlite:////tmp/peerd-example.sqlite")
    >>> database.run(lambda connection: connection.exec_driver_sql("select 1").scalar())
    1
    >>> database.close()
    """

    def __init__(self, url: str | URL, *, pool_size: int = 5, response_timeout: int | None = None) -> None:
        self.url = with_driver(url)
        self._engines = open_engines(self.url, pool_size, response_timeout=response_timeout)
        self.engine, self._statements, self._hot_path = self._engines
        self._opened = OpenedConnections(self.engines)
        register_fork_hooks(self)

    @property
    def name(self) -> str:
        """Which database: mysql, postgresql or sqlite."""
        return self.engine.dialect.name

    @property
    def is_single_writer(self) -> bool:
        """Whether all others wait while one writes, whatever it writes."""
        return self.name == "sqlite"

    @property
    def engines(self) -> tuple[Engine, ...]:
        """All that connect: for transactions, for statements, and for `run_autocommit`, as far as these are not the
        same.
        """
        return self._engines.distinct_pools()

    def __repr__(self) -> str:
        return f"Database({self.url.render_as_string(hide_password=True)!r})"

    def run(self, operation: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation in a transaction of its own, and commit it.

        It is run again, after a short random pause, when the database rolled it back (deadlock, lock time-out,
        serialization failure, busy, a statement that somebody cancelled); and at once, on another connection, when one
        that had rested turns out to be closed before the commit was sent: then nothing of it was done. It is not when
        the answer to its commit was lost: only the operation knows what that means.

        Raises:
            DatabaseUnavailable: the database could not be reached, or the answer was lost.
            DatabaseConnectionRefused: it does not let us in.
            DatabaseBusy: it undid the work at each try, for about a minute at the most.
        """
        return self._run_with_retries(partial(self._run_in_transaction, self.engine, operation, *args, **kwargs))

    def run_autocommit(
        self, operation: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run an operation whose statements may each be committed by itself; otherwise as `run`.

        A server is then spared the round trips that begin and end a transaction. Only for operations that may be
        repeated when some of their statements are committed. On SQLite, where a round trip costs nothing and a commit
        much, they are one transaction, and no CHECK is asked: what they write the database has made itself. PostgreSQL
        plans their statements once, without a look at the values that they are executed with.

        Raises:
            RowLocked: the transaction of another session holds a row, and has not let it go within a second. Statements
                before may be committed.
        """
        if self.name == "sqlite":
            return self._run_with_retries(partial(self._run_in_transaction, self._hot_path, operation, *args, **kwargs))
        return self._run_with_retries(partial(self._run_autocommit, operation, *args, **kwargs), waits_for_locks=False)

    def run_idempotent(
        self, operation: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As `run_autocommit`, for an operation that may be done twice as well as once, as a beat.

        A connection that has rested is then not asked first whether it is still there, which is a round trip: if it
        is not, another one is taken.
        """
        if self.name == "sqlite":
            return self.run(operation, *args, **kwargs)
        return self._run_with_retries(partial(self._run_idempotent, operation, *args, **kwargs), waits_for_locks=False)

    def run_statement(
        self, operation: Callable[Concatenate[AutocommitConnection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run an operation that is one statement, which is committed by itself, and soonest; otherwise as `run`."""
        return self._run_with_retries(partial(self._run_statement, operation, *args, **kwargs))

    def read(self, operation: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation that only reads; on SQLite it does not wait for the writer, and sees one moment.

        On servers each of its statements sees the moment at which it begins, as under READ COMMITTED.

        Raises:
            DatabaseUnavailable: see `run`.
        """
        return self._run_with_retries(partial(self._run_idempotent, operation, *args, **kwargs))

    def may_lag(self) -> bool:
        """Whether a read may lack for a moment what somebody else has committed: there are, or may be, more servers.

        Raises:
            DatabaseUnavailable: see `run`.
        """
        return len(hosts_of(self.url)) > 1 or self.read(may_lag)

    def close(self) -> None:
        """Close all connections."""
        for engine in self.engines:
            engine.dispose()

    def before_fork(self) -> None:
        """Called in a process that forks."""
        if self.is_single_writer:
            self.close()

    def reset_after_fork(self) -> None:
        """Called in a process that was forked."""
        self._opened.abandon_inherited()

    def _run_in_transaction(self, engine: Engine, operation: Callable[..., T], *args: object, **kwargs: object) -> T:
        # The commit is outside of what may be done again: whether one took place that was not answered is not known.
        with (
            self._writer_turn(),
            _connect_without_ping(engine) as connection,
            connection.begin(),
            _detect_stale_connection(connection),
            _detect_cancellation(),
        ):
            return operation(connection, *args, **kwargs)

    def _run_autocommit(self, operation: Callable[..., T], *args: object, **kwargs: object) -> T:
        with self._hot_path.connect() as connection, _detect_cancellation():
            return operation(connection, *args, **kwargs)

    def _run_statement(self, operation: Callable[..., T], *args: object, **kwargs: object) -> T:
        with self._writer_turn(), self._statements.connect() as connection, _detect_cancellation():
            return operation(AutocommitConnection(connection), *args, **kwargs)

    def _writer_turn(self) -> AbstractContextManager[None]:
        """On SQLite the turn of one writer among those of this process; servers have locks of their own."""
        return writer_lock_of(self.url.database or "").hold() if self.is_single_writer else nullcontext()

    def _run_idempotent(self, operation: Callable[..., T], *args: object, **kwargs: object) -> T:
        with (
            _connect_without_ping(self._statements) as connection,
            _detect_stale_connection(connection),
            _detect_cancellation(),
        ):
            return operation(connection, *args, **kwargs)

    def _run_with_retries(self, once: Callable[[], T], *, waits_for_locks: bool = True) -> T:
        began = time.monotonic()
        for attempt in count():
            try:
                with translated_errors():
                    return once()
            except _StaleConnection:
                continue  # the next connection is a new one, for all that had rested with it are distrusted
            except Exception as error:
                if not (database_errors.was_rolled_back(error) or isinstance(error, _StatementCancelled)):
                    raise
                tried = time.monotonic() - began
                if not waits_for_locks and database_errors.is_lock_timeout(error):
                    raise RowLocked(database_errors.driver_message(error), tried) from error
                if attempt == TRIES - 1 or tried > MAX_RETRY_SECONDS:
                    raise DatabaseBusy(database_errors.driver_message(error), tried) from error
                time.sleep(exponential_backoff(attempt + 1, base=FIRST_PAUSE, jitter=0.5))
        raise AssertionError("the last try returns or raises")


class _StatementCancelled(Exception):
    """Somebody, or a time limit of the server, cancelled a statement; it was not the commit of a transaction."""


@contextmanager
def _detect_cancellation() -> Iterator[None]:
    """Tell apart a statement that was cancelled: it did nothing, and its transaction can only be rolled back."""
    try:
        yield
    except DBAPIError as error:
        if database_errors.was_cancelled(error):
            raise _StatementCancelled(database_errors.driver_message(error)) from error
        raise


class _StaleConnection(Exception):
    """A connection had been closed while it rested."""


@contextmanager
def _connect_without_ping(engine: Engine) -> Iterator[Connection]:
    """A connection that was not asked whether it is still there."""
    with without_liveness_check():
        lent = engine.connect()
    with lent as connection:
        yield connection


@contextmanager
def _detect_stale_connection(connection: Connection) -> Iterator[None]:
    """Tell apart a connection that had rested and was lost from all else that goes wrong."""
    rested = was_idle(connection)
    try:
        yield
    except DBAPIError as error:
        if rested and error.connection_invalidated:
            raise _StaleConnection from error
        raise


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn the drivers' many ways of saying that a database is away, or refuses us, into our own errors."""
    try:
        yield
    except Exception as error:
        database_errors.clear_traceback_frames(error)
        if isinstance(error, RuntimeError) and "'cryptography' package is required" in str(error):
            advice = "pip install cryptography, or let the user log in with mysql_native_password"
            raise UnsupportedDatabase(f"PyMySQL cannot log in as MySQL 8 wants it: {advice}") from error
        remedy = database_errors.refusal_remedy(error)
        if remedy is not None:
            raise DatabaseConnectionRefused(database_errors.driver_message(error), remedy) from error
        if database_errors.is_away(error):
            raise DatabaseUnavailable(database_errors.driver_message(error)) from error
        raise


class DatabaseThreads:
    """A database for an event loop: the same operations, each on one of a few threads.

    Args:
        database: it is not closed with the threads.
        threads: operations that can run at once; each has a connection.
    """

    def __init__(self, database: Database, threads: int = 4) -> None:
        self.database = database
        self._threads = threads
        self.reset_after_fork()
        register_fork_hooks(self)

    async def run(self, operation: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """`Database.run`, awaited."""
        call = partial(self.database.run, operation, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def run_autocommit(
        self, operation: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`Database.run_autocommit`, awaited."""
        call = partial(self.database.run_autocommit, operation, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def run_statement(
        self, operation: Callable[Concatenate[AutocommitConnection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`Database.run_statement`, awaited."""
        call = partial(self.database.run_statement, operation, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def run_idempotent(
        self, operation: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`Database.run_idempotent`, awaited."""
        call = partial(self.database.run_idempotent, operation, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def read(self, operation: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """`Database.read`, awaited."""
        call = partial(self.database.read, operation, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def before_fork(self) -> None:
        """Called in a process that forks: its threads stay in it."""

    def reset_after_fork(self) -> None:
        """Have threads of one's own; called in a process that was forked, too."""
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="peerd-database")

    def close(self) -> None:
        """Let the threads end; what runs is finished first."""
        self._pool.shutdown(wait=False, cancel_futures=True)
