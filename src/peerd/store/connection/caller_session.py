"""Working in a connection that is not ours: the caller's transaction, with the caller's settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from peerd.store.schema.types import MYSQL


@contextmanager
def utc_session(connection: Connection) -> Iterator[None]:
    """Let a moment that is written mean what it says, whatever the caller's session has as its time zone.

    MySQL reads a TIMESTAMP in the session's zone, in which an hour of autumn is ambiguous; so the session is at UTC
    meanwhile. The other databases are told the zone with the moment.
    """
    if connection.dialect.name not in MYSQL:
        yield
        return
    zone = connection.execute(sa.text("SELECT @@session.time_zone")).scalar_one()
    connection.execute(sa.text("SET SESSION time_zone = '+00:00'"))
    restore = sa.text("SET SESSION time_zone = :zone")
    try:
        yield
    except BaseException:
        with suppress(DBAPIError):  # a lost connection has lost its zone with it; the first error is the one to tell
            connection.execute(restore, {"zone": zone})
        raise
    connection.execute(restore, {"zone": zone})


def reads_latest_commits(connection: Connection) -> bool:
    """Whether a plain read sees what others committed a moment ago.

    On MySQL a caller's REPEATABLE READ does not. PostgreSQL and SQLite refuse a write that began from an older view.
    """
    if connection.dialect.name not in MYSQL:
        return True
    names = "'tx_isolation', 'transaction_isolation'"  # MariaDB's and MySQL's
    level = connection.execute(sa.text(f"SHOW SESSION VARIABLES WHERE Variable_name IN ({names})")).first()
    return level is not None and level[1] in ("READ-COMMITTED", "READ-UNCOMMITTED")
