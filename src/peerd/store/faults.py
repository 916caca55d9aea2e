"""What a database's error means: that it undid the work and one may try again, or that it is away."""

from __future__ import annotations

from typing import Final

from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

ROLLED_BACK_ON_MYSQL: Final = frozenset(
    {
        1020,  # a row changed since it was read (MariaDB 11.6 on, with innodb_snapshot_isolation)
        1205,  # a lock was waited for too long; only the statement is undone, so the unit must be rolled back
        1213,  # deadlock; on Galera also a lost certification, at COMMIT
        3572,  # NOWAIT met a lock
    }
)
AWAY_ON_MYSQL: Final = frozenset(
    {
        1040,  # too many connections
        1047,  # a Galera node that is not ready
        1053,  # shutdown in progress
        1077,
        1079,
        1152,  # connection aborted
        1158,
        1159,
        1160,
        1161,  # network errors and time-outs
        1290,  # a fail-over left this server read-only
        1836,
        1927,  # connection was killed
        2002,
        2003,  # cannot connect
        2006,
        2013,  # lost connection
        2055,
        4031,  # disconnected for inactivity
    }
)
ROLLED_BACK_ON_POSTGRESQL: Final = frozenset(
    {
        "40001",  # serialization failure
        "40P01",  # deadlock
        "55P03",  # lock not available
    }
)
AWAY_ON_POSTGRESQL: Final = ("08", "57P0", "53300", "25006")
"""Beginnings of SQLSTATEs: connection errors, shutdown, start-up, too many connections, read-only after a fail-over."""
BUSY_ON_SQLITE: Final = ("database is locked", "database table is locked", "database schema is locked")
AWAY_ON_SQLITE: Final = ("disk i/o error", "unable to open database file", "database or disk is full")


def code_of(error: DBAPIError) -> int | str | None:
    """The driver's own number or SQLSTATE, where it has one."""
    original = error.orig
    state = getattr(original, "sqlstate", None)
    if isinstance(state, str):
        return state
    first = original.args[0] if original is not None and original.args else None
    return first if isinstance(first, int) else None


def was_rolled_back(error: Exception) -> bool:
    """Whether the database undid the transaction, so that it may be tried again as a whole."""
    if not isinstance(error, DBAPIError):
        return False
    code = code_of(error)
    if code in ROLLED_BACK_ON_MYSQL or code in ROLLED_BACK_ON_POSTGRESQL:
        return True
    return isinstance(error, OperationalError) and str(error.orig).lower().startswith(BUSY_ON_SQLITE)


def is_away(error: Exception) -> bool:
    """Whether the database could not be reached, or stopped answering in the middle."""
    if isinstance(error, PoolTimeout):
        return True
    if not isinstance(error, DBAPIError):
        return False
    code = code_of(error)
    if error.connection_invalidated or code in AWAY_ON_MYSQL:
        return True
    if isinstance(code, str):
        return code.startswith(AWAY_ON_POSTGRESQL)
    text = str(error.orig).lower()
    if type(error.orig).__module__.startswith("psycopg"):
        return isinstance(error, OperationalError)  # without a SQLSTATE: the connection itself failed
    return isinstance(error, OperationalError) and text.startswith(AWAY_ON_SQLITE)
