"""Operations in the transaction of a caller, whose session has other settings than peerd's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from peerd.store.schema.types import MYSQL


@contextmanager
def utc_session(connection: Connection) -> Iterator[None]:
    """Set the session's time zone to UTC, so that written timestamps are unambiguous, and restore it afterwards.

    Only on MySQL, which reads a TIMESTAMP in the session's zone; elsewhere the value carries its zone.
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
        with suppress(DBAPIError):  # the first error is the one to raise
            connection.execute(restore, {"zone": zone})
        raise
    connection.execute(restore, {"zone": zone})


def reads_latest_commits(connection: Connection) -> bool:
    """Whether a plain read sees the latest commits: not in a caller's REPEATABLE READ on MySQL.

    PostgreSQL and SQLite refuse a write that is based on an older snapshot.
    """
    if connection.dialect.name not in MYSQL:
        return True
    names = "'tx_isolation', 'transaction_isolation'"  # MariaDB's and MySQL's
    level = connection.execute(sa.text(f"SHOW SESSION VARIABLES WHERE Variable_name IN ({names})")).first()
    return level is not None and level[1] in ("READ-COMMITTED", "READ-UNCOMMITTED")
