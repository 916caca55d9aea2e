"""Servers of a Galera cluster: readiness, and waiting until a server has applied the others' commits.

Its servers apply one another's commits within milliseconds, but not at the same moment. Writes are right without a
wait, because a commit is certified against all others: of two servers that write the same row, one fails as at a
deadlock. A *read* may lack a row of another server, though. So a server is waited for when a connection is opened, and
before the few operations that begin with `wait_for_sync`.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any, Final

from sqlalchemy.engine import Connection

from peerd.store.schema.types import MYSQL, is_mariadb

IS_MEMBER: Final = "peerd_galera"
"""In a connection's ``info``: whether its server belongs to a Galera cluster."""
NOT_READY: Final = 1047
SYNC_WAIT: Final = "SET STATEMENT wsrep_sync_wait = 1 FOR SELECT 1"


def is_member(connection: Connection) -> bool:
    """Whether the server of a connection, if peerd opened it, belongs to a Galera cluster."""
    return bool(connection.info.get(IS_MEMBER))


def may_lag(connection: Connection) -> bool:
    """Whether the server may lack recent commits of another one. MySQL may: its Group Replication is not detectable."""
    return is_member(connection) or (connection.dialect.name in MYSQL and not is_mariadb(connection.dialect))


def wait_for_sync(connection: Connection) -> None:
    """On Galera, wait until this server has applied all commits of the others so far.

    It must be the first statement of its transaction: Galera does not wait in later ones.
    """
    if is_member(connection):
        connection.exec_driver_sql(SYNC_WAIT)


def check_ready(dbapi: Any, connection: Any) -> bool:
    """Whether the server of a new connection belongs to a Galera cluster; wait until it has caught up.

    Raises:
        dbapi.OperationalError: it is not ready: it has lost the others, or is joining them.
    """
    with closing(connection.cursor()) as cursor:
        if _query_value(cursor, "SHOW VARIABLES LIKE 'wsrep_on'") != "ON":
            return False
        if _query_value(cursor, "SHOW GLOBAL STATUS LIKE 'wsrep_ready'") != "ON":
            raise dbapi.OperationalError(
                NOT_READY, "the server is not ready: it is not connected to its Galera cluster"
            )
        cursor.execute(SYNC_WAIT)
        cursor.fetchall()
        return True


def _query_value(cursor: Any, query: str) -> str | None:
    cursor.execute(query)
    row = cursor.fetchone()
    return None if row is None else str(row[1])
