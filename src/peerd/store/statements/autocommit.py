"""A statement that commits by itself, given to the driver without SQLAlchemy between."""

from __future__ import annotations

from functools import partial
from typing import Any

from peerd.store.connection.sqlite_lock import writer_lock_of
from peerd.store.statements.driver_connection import DriverConnection


class AutocommitConnection(DriverConnection):
    """A connection for `CompiledStatement.run`, on which each statement is committed when its reply is there.

    Args:
        connection: of an engine that commits each statement; of SQLite any that is in no transaction.
    """

    def _execute(self, driver: Any, cursor: Any, sql: str, arguments: Any) -> None:
        execute = partial(cursor.execute, sql, arguments)
        if self.dialect.name == "sqlite":
            writer_lock_of(self._connection.engine.url.database or "").retry_while_locked(driver, execute)
        else:
            execute()
