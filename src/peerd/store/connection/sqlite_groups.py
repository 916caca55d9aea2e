"""Transactions of SQLite in quick succession, on connections that stay open between them.

To check a connection out, begin and end its transaction through SQLAlchemy takes 40 µs, as long as SQLite needs for a
reservation. Here a transaction costs little beside its statements, and the connection that was used last, whose pages
are still in memory, is used again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError

from peerd.store.connection.sqlite_lock import TURN, SqliteWriterLock, WriterBusy, is_busy, writer_lock_of
from peerd.store.statements.driver_connection import DriverConnection

T = TypeVar("T")

IN_GROUP: Final = "peerd_in_group"
"""In a connection's ``info``: its transactions are begun here, and not when SQLAlchemy begins one."""


class SqliteGroups:
    """The transactions of one process on one file, one after another. Thread-safe.

    Args:
        engine: whose connections are used, and never returned to its pool.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._idle: deque[_OpenConnection] = deque()

    def run(self, operation: Callable[..., T], *args: object, durable: bool) -> T:
        """Run an operation in a transaction, and commit it; without ``durable``, a power failure may undo it."""
        lock = self._lock
        with lock.hold(turn=TURN):
            return self._run(lambda opened: opened.begin(lock, durable=durable), operation, *args)

    def run_at_once(self, operation: Callable[..., T], *args: object, durable: bool) -> T:
        """The same without waiting for another writer.

        Raises:
            WriterBusy: there is one; nothing was done.
        """
        lock = self._lock
        with lock.hold_at_once():
            return self._run(lambda opened: opened.begin_at_once(lock, durable=durable), operation, *args)

    @property
    def _lock(self) -> SqliteWriterLock:
        return writer_lock_of(self._engine.url.database or "")

    def _run(self, begin: Callable[[_OpenConnection], None], operation: Callable[..., T], *args: object) -> T:
        opened = self._take()
        try:
            begin(opened)
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
        """Forget the connections, in a forked process."""
        self._idle = deque()

    def _take(self) -> _OpenConnection:
        try:
            return self._idle.pop()
        except IndexError:
            return _OpenConnection(self._engine.connect())


class _OpenConnection:
    """A connection, and whether its commits wait for the disk."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._statements = DriverConnection(connection)
        self._driver: Any = connection.connection.dbapi_connection
        self._is_durable = True
        connection.info[IN_GROUP] = True
        self._execute("PRAGMA busy_timeout = 0")  # SQLite's own retries are not fair: see `SqliteWriterLock`

    def begin(self, lock: SqliteWriterLock, *, durable: bool) -> None:
        self._set_durable(durable=durable)
        lock.retry(partial(self._execute, "BEGIN IMMEDIATE"))

    def begin_at_once(self, lock: SqliteWriterLock, *, durable: bool) -> None:
        self._set_durable(durable=durable)
        try:
            self._execute("BEGIN IMMEDIATE")
        except DBAPIError as error:
            if not is_busy(error):
                raise
            lock.note_contention()
            raise WriterBusy from error

    def _set_durable(self, *, durable: bool) -> None:
        if durable is not self._is_durable:
            self._execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._is_durable = durable

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
