"""A connection whose statements go to the driver without SQLAlchemy between.

SQLAlchemy's connections, pool, errors and lost connections are used as they are; only its work around one execution is
left out: the context and the result, which take longer than the database needs for one small statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.engine import Connection


class DriverResult:
    """The result of an executed cursor, with the names of SQLAlchemy's CursorResult."""

    __slots__ = ("_rows", "lastrowid", "rowcount")

    def __init__(self, cursor: Any) -> None:
        self._rows: Sequence[Sequence[Any]] = cursor.fetchall() if cursor.description is not None else ()
        self.lastrowid: int = getattr(cursor, "lastrowid", 0)  # psycopg has none
        self.rowcount: int = cursor.rowcount

    def all(self) -> Sequence[Sequence[Any]]:
        """All rows, as the driver makes them."""
        return self._rows

    def scalar_one(self) -> Any:
        """The one value."""
        [[value]] = self._rows
        return value


class DriverConnection:
    """A connection for `CompiledStatement.run`, in the transaction that its caller has begun.

    Args:
        connection: SQLAlchemy's.
    """

    def __init__(self, connection: Connection) -> None:
        self.dialect = connection.dialect
        self._connection = connection

    def exec_driver_sql(self, sql: str, arguments: Any) -> DriverResult:
        """Execute a statement.

        Raises:
            DBAPIError: as from SQLAlchemy; a connection that was lost is given up.
        """
        driver: Any = self._connection.connection.dbapi_connection
        try:
            cursor = driver.cursor()
            self._execute(driver, cursor, sql, arguments)
            result = DriverResult(cursor)
            cursor.close()
        except BaseException as error:  # noqa: BLE001 - SQLAlchemy raises it again, as its own error
            statement = sql if isinstance(error, self.dialect.loaded_dbapi.Error) else None
            # Only this private method applies an error to the connection, its pool and our listeners.
            self._connection._handle_dbapi_exception(error, statement, arguments, None, None)  # noqa: SLF001
        return result

    def _execute(self, driver: Any, cursor: Any, sql: str, arguments: Any) -> None:
        cursor.execute(sql, arguments)
