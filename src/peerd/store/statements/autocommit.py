"""A statement that commits by itself, given to the driver without SQLAlchemy between.

SQLAlchemy's connections, pool, errors and lost connections are used as they are; only its work around one execution is
left out: the transaction, the context and the result, which take longer than the database needs for one INSERT.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from sqlalchemy.engine import Connection

from peerd.store.connection.sqlite_lock import writer_lock_of


class AutocommitResult:
    """The result of an executed cursor, with the names of SQLAlchemy's CursorResult."""

    __slots__ = ("_rows", "lastrowid", "rowcount")

    def __init__(self, cursor: Any) -> None:
        self._rows: Sequence[Sequence[Any]] = cursor.fetchall() if cursor.description is not None else ()
        self.lastrowid: int = getattr(cursor, "lastrowid", 0)  # psycopg has none
        self.rowcount: int = cursor.rowcount

    def scalar_one(self) -> Any:
        """The one value."""
        [[value]] = self._rows
        return value


class AutocommitConnection:
    """A connection for `CompiledStatement.run`, on which each statement is committed when its reply is there.

    Args:
        connection: of an engine that commits each statement; of SQLite any that is in no transaction.
    """

    def __init__(self, connection: Connection) -> None:
        self.dialect = connection.dialect
        self._connection = connection

    def exec_driver_sql(self, sql: str, arguments: Any) -> AutocommitResult:
        """Execute and commit.

        Raises:
            DBAPIError: as from SQLAlchemy; a connection that was lost is given up.
        """
        driver: Any = self._connection.connection.dbapi_connection
        try:
            cursor = driver.cursor()
            execute = partial(cursor.execute, sql, arguments)
            if self.dialect.name == "sqlite":
                writer_lock_of(self._connection.engine.url.database or "").retry_while_locked(driver, execute)
            else:
                execute()
            answer = AutocommitResult(cursor)
            cursor.close()
        except BaseException as error:  # noqa: BLE001 - SQLAlchemy raises it again, as its own error
            statement = sql if isinstance(error, self.dialect.loaded_dbapi.Error) else None
            # Only this private method applies an error to the connection, its pool and our listeners.
            self._connection._handle_dbapi_exception(error, statement, arguments, None, None)  # noqa: SLF001
        return answer
