"""What a server of a Galera cluster needs beyond a plain one: to be ready, and now and then to have caught up.

Its servers apply one another's commits within milliseconds, but not at the same moment. Every operation here is right
without that, because a commit is certified against all others: of two servers that write the same row one fails, as at
a deadlock. What a *read* on another server lacks must not be taken for not being there, though. So a server has caught
up before a process first works with it, and before the few operations that begin with `wait_for_sync`.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy.engine import Connection

from peerd.store.schema.types import MYSQL

IS_MEMBER: Final = "peerd_galera"
"""In a connection's ``info``: whether its server belongs to a Galera cluster."""
NOT_READY: Final = 1047
SYNC_WAIT: Final = "SET STATEMENT wsrep_sync_wait = 1 FOR SELECT 1"


def is_member(connection: Connection) -> bool:
    """Whether a connection's server belongs to a Galera cluster, as far as peerd has connected to it itself."""
    return bool(connection.info.get(IS_MEMBER))


def may_lag(connection: Connection) -> bool:
    """Whether its server may lack for a moment what another one has committed, as far as one can tell by asking it.

    A server of MySQL's Group Replication looks like a plain one, so MySQL may.
    """
    return is_member(connection) or (
        connection.dialect.name in MYSQL and not getattr(connection.dialect, "is_mariadb", False)
    )


def wait_for_sync(connection: Connection) -> None:
    """Wait until this server has applied all that the others had committed when this began.

    It must be the first statement of its transaction: later ones do not wait, on Galera. Nothing is done elsewhere.
    """
    if is_member(connection):
        connection.exec_driver_sql(SYNC_WAIT)


def check_ready(dbapi: Any, connection: Any) -> bool:
    """See that a server that has just been connected to can be worked with; whether it belongs to a Galera cluster.

    Raises:
        dbapi.OperationalError: it is not ready: it has lost the others, or is only joining them.
    """
    cursor = connection.cursor()
    try:
        if _query_value(cursor, "SHOW VARIABLES LIKE 'wsrep_on'") != "ON":
            return False
        if _query_value(cursor, "SHOW GLOBAL STATUS LIKE 'wsrep_ready'") != "ON":
            raise dbapi.OperationalError(NOT_READY, "the server is not ready: it is not with its Galera cluster")
        cursor.execute(SYNC_WAIT)
        cursor.fetchall()
        return True
    finally:
        cursor.close()


def _query_value(cursor: Any, question: str) -> str | None:
    cursor.execute(question)
    row = cursor.fetchone()
    return None if row is None else str(row[1])
