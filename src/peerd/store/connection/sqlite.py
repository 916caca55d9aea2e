"""Connections to SQLite: its single writer lock, acquired fairly, and transactions in quick succession.

SQLite retries for the lock at growing intervals of up to 100 ms, so a writer that has waited is overtaken by later
ones. Retries at short random intervals bring the longest wait of 14 writers of tiny transactions from 2.0 s to 0.16 s.
The writers of one process first acquire a lock of the process, and only its holder retries for SQLite's: a process that
claims and completes at the same time had spent half of its time on these retries.
"""

from __future__ import annotations

import math
import os
import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError

from peerd.store.connection.pools import INHERITED, Engines, ShrinkingPool
from peerd.store.statements import DriverConnection

T = TypeVar("T")

BUSY_TIMEOUT: Final = 30
"""Seconds that a writer waits for another one."""
LOCK_RETRY_PAUSE: Final = (0.0005, 0.006)
"""Range of the random seconds between two attempts."""
YIELD_WITHIN: Final = 1.0
"""Seconds for which a process pauses between its transactions after it has met a writer of another process."""
TURN: Final = 0.03
"""Seconds for which the transactions of a group may follow one another before such a pause."""
LARGEST_IDLE_WAL: Final = 16 * 1024 * 1024
"""Bytes that SQLite's log keeps after a reader or a large transaction has made it larger."""
READ_ONLY: Final = "peerd_read_only"
"""Execution option: this transaction only reads, so on SQLite it does not wait for the writer."""
LENIENT_TEXT: Final = partial(str, encoding="utf-8", errors="replace")
"""Reads a text of SQLite, which may hold any bytes: one such row must not make the others unreadable."""
IN_GROUP: Final = "peerd_in_group"
"""In a connection's ``info``: its transactions are begun here, and not when SQLAlchemy begins one."""


def open_engines(url: URL, pool_size: int) -> Engines:
    """The engines for SQLite. For the arguments see `Database`."""
    checked, unchecked = _engine(url, pool_size), _engine(url, pool_size, check_constraints=False)
    reads = checked.execution_options(**{READ_ONLY: True})
    return Engines(checked, reads, short=unchecked, groups=unchecked, undurable_groups=unchecked)


def _engine(url: URL, pool_size: int, *, check_constraints: bool = True) -> Engine:
    engine = sa.create_engine(
        url,
        connect_args={"timeout": BUSY_TIMEOUT, "check_same_thread": False},
        pool_size=(pool_size + 1) // 2,
        max_overflow=pool_size,
        poolclass=ShrinkingPool,
    )

    @event.listens_for(engine, "do_connect")
    def do_connect(dialect: Any, record: Any, arguments: list[Any], parameters: dict[str, Any]) -> None:
        _create_private_file(url.database)

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # the driver begins no transactions
        connection.text_factory = LENIENT_TEXT
        with closing(connection.cursor()) as cursor:
            cursor.execute("PRAGMA journal_mode = WAL")
            cursor.execute(f"PRAGMA journal_size_limit = {LARGEST_IDLE_WAL}")
            cursor.execute("PRAGMA synchronous = FULL")  # an enqueued task survives a power failure
            if not check_constraints:
                cursor.execute("PRAGMA ignore_check_constraints = ON")

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        # A reader that becomes a writer while there is another writer fails at once, with any time-out.
        if connection.info.get(IN_GROUP, False):
            return
        if connection.get_execution_options().get(READ_ONLY, False):
            connection.exec_driver_sql("BEGIN")
        else:
            _begin_immediate(connection)

    return engine


def _begin_immediate(connection: Connection) -> None:
    begin = partial(DriverConnection(connection).exec_driver_sql, "BEGIN IMMEDIATE", ())
    driver = connection.connection.dbapi_connection
    writer_lock_of(connection.engine.url.database or "").retry_while_locked(driver, begin)


def _create_private_file(file: str | None) -> None:
    """Create the database file with mode 0600; SQLite creates its other files with the same mode.

    Task bodies are private, and even a read lock on a file can stop the queue. An existing file is not opened: closing
    it again would drop all POSIX locks of this process on it, and with them what protects the log of its connections
    (https://www.sqlite.org/howtocorrupt.html, 2.2).
    """
    if file and file != ":memory:" and not file.startswith("file:"):
        with suppress(OSError):  # SQLite reports it
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


# ---------------------------------------------------------------- the lock


class WriterBusy(Exception):
    """Another writer has the lock."""


class SqliteWriterLock:
    """The lock of this process's writers on one file."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._contended_at = -math.inf
        self._released_at = -math.inf
        self._paused_at = -math.inf

    @contextmanager
    def hold(self, *, turn: float = 0.0, waits: bool = True) -> Iterator[None]:
        """Hold the lock of this process. When it is not free within `BUSY_TIMEOUT`, SQLite's lock alone decides.

        If a writer of another process was met lately, there is a pause after the preceding transaction: without it the
        other process would never find SQLite's lock free.

        Args:
            turn: seconds since the last pause in which there is none.
            waits: whether to wait for the lock, and for the end of a pause.

        Raises:
            WriterBusy: it was not to be waited.
        """
        if not waits and (self._must_pause(turn) or not self._lock.acquire(blocking=False)):
            raise WriterBusy
        acquired = self._lock.acquire(timeout=BUSY_TIMEOUT) if waits else True
        try:
            if waits and self._must_pause(turn):
                if time.monotonic() < self._released_at + LOCK_RETRY_PAUSE[1]:
                    time.sleep(random.uniform(*LOCK_RETRY_PAUSE))
                self._paused_at = time.monotonic()
            yield
        finally:
            self._released_at = time.monotonic()
            if acquired:
                self._lock.release()

    def _must_pause(self, turn: float) -> bool:
        now = time.monotonic()
        return now < self._contended_at + YIELD_WITHIN and now >= self._paused_at + turn

    def note_contention(self) -> None:
        """Another process has been met that writes to the file."""
        self._contended_at = time.monotonic()

    def retry_while_locked(self, driver: Any, attempt: Callable[[], object]) -> None:
        """Repeat one statement, on a sqlite3 connection without a transaction, while another writer has the lock.

        Raises:
            sqlite3.Error: it failed; with SQLITE_BUSY after `BUSY_TIMEOUT`.
        """
        driver.execute("PRAGMA busy_timeout = 0")
        try:
            self.retry(attempt)
        finally:
            driver.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT * 1000:.0f}")

    def retry(self, attempt: Callable[[], object]) -> None:
        """`retry_while_locked`, on a connection whose busy_timeout is 0."""
        deadline = time.monotonic() + BUSY_TIMEOUT
        while True:
            try:
                attempt()
            except (sqlite3.OperationalError, DBAPIError) as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
            else:
                return
            self.note_contention()
            time.sleep(random.uniform(*LOCK_RETRY_PAUSE))


def is_busy(error: Exception) -> bool:
    """Whether SQLite reports that another writer has the lock."""
    reason = error.orig if isinstance(error, DBAPIError) else error
    return bool(getattr(reason, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY)


_writer_locks: Final[dict[str, SqliteWriterLock]] = {}


def writer_lock_of(file: str) -> SqliteWriterLock:
    """The lock of this process's writers on a file, shared by all engines of that file."""
    return _writer_locks.setdefault(file, SqliteWriterLock())


os.register_at_fork(after_in_child=_writer_locks.clear)


# ---------------------------------------------------------------- transactions in quick succession


class SqliteTransactions:
    """The short transactions of one process on one file, one after another. Thread-safe.

    To check a connection out, begin and end its transaction through SQLAlchemy takes 40 µs, as long as SQLite needs for
    a reservation. Here a transaction costs little beside its statements, and the connection that was used last, whose
    pages are still in memory, is used again.

    Args:
        engine: whose connections are used, and never returned to its pool.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._idle: deque[_OpenConnection] = deque()
        self.sets_durability = True
        """Without it, commits wait for the disk as the engine's connections have it; `durable` changes nothing."""

    def run(
        self,
        operation: Callable[..., T],
        *args: object,
        durable: bool = True,
        turn: float = 0.0,
        waits: bool = True,
    ) -> T:
        """Run an operation in a transaction, and commit it.

        Args:
            operation: a function over a connection.
            args: its other arguments.
            durable: without it, a power failure may undo the transaction.
            turn: see `SqliteWriterLock.hold`.
            waits: see `SqliteWriterLock.hold`.

        Raises:
            WriterBusy: there is another writer, and it was not to be waited for; nothing was done.
        """
        lock = writer_lock_of(self._engine.url.database or "")
        with lock.hold(turn=turn, waits=waits):
            opened = self._idle.pop() if self._idle else _OpenConnection(self._engine.connect())
            try:
                if self.sets_durability:
                    opened.set_durable(durable=durable)
                opened.begin(lock, waits=waits)
                result = operation(opened.connection, *args)
                opened.commit()
            except BaseException:
                if opened.roll_back():
                    self._idle.append(opened)
                raise
            self._idle.append(opened)
            return result

    def close(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            self._idle.pop().close()

    def abandon(self) -> None:
        """Forget the connections, in a forked process: one may have been returned since its parent closed them."""
        INHERITED.append(self._idle)
        self._idle = deque()


class _OpenConnection:
    """A connection, and whether its commits wait for the disk."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._statements = DriverConnection(connection)
        self._driver: Any = connection.connection.dbapi_connection
        self._is_durable = True
        connection.info[IN_GROUP] = True
        self._execute("PRAGMA busy_timeout = 0")  # SQLite's own retries are not fair: see `SqliteWriterLock`

    def set_durable(self, *, durable: bool) -> None:
        """Let commits wait for the disk, or not."""
        if durable is not self._is_durable:
            self._execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._is_durable = durable

    def begin(self, lock: SqliteWriterLock, *, waits: bool) -> None:
        if waits:
            lock.retry(partial(self._execute, "BEGIN IMMEDIATE"))
            return
        try:
            self._execute("BEGIN IMMEDIATE")
        except DBAPIError as error:
            if not is_busy(error):
                raise
            lock.note_contention()
            raise WriterBusy from error

    def commit(self) -> None:
        if self.connection.in_transaction():  # one that SQLAlchemy has noticed
            self.connection.commit()
        else:
            self._execute("COMMIT")

    def roll_back(self) -> bool:
        """Whether the connection can be used again."""
        try:
            self.connection.rollback()  # also a transaction whose commit has failed, which is not active any more
            if not self.connection.invalidated:
                self._driver.rollback()
        except Exception:  # noqa: BLE001 - the error of the operation is raised
            self.close()
        return not (self.connection.invalidated or self.connection.closed)

    def close(self) -> None:
        if not self.connection.invalidated:
            self.connection.invalidate()  # its settings differ from those of the pool's
        self.connection.close()

    def _execute(self, sql: str) -> None:
        self._statements.exec_driver_sql(sql, ())
