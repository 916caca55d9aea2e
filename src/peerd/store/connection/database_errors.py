"""What a database's error means: that it undid the work and one may try again, or that it is away."""

from __future__ import annotations

import re
import traceback
from typing import Final

from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

ROLLED_BACK_ON_MYSQL: Final = frozenset(
    {
        1020,  # a row changed since it was read (MariaDB 11.6 on, with innodb_snapshot_isolation)
        1205,  # a lock was waited for too long; only the statement is undone, so the unit must be rolled back
        1213,  # deadlock; on Galera also a lost certification, at COMMIT
        3101,  # a lost certification, on MySQL's Group Replication
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
CANCELLED: Final = frozenset(
    {
        1317,  # KILL QUERY
        1969,  # MariaDB's max_statement_time
        3024,  # MySQL's max_execution_time
        "57014",  # pg_cancel_backend(), or statement_timeout
    }
)
LOCK_TIMED_OUT: Final = frozenset({1205, "55P03"})
AWAY_ON_POSTGRESQL: Final = ("08", "57P0", "53300", "25006", "25P03")
"""Beginnings of SQLSTATEs: connection errors, shutdown, start-up, too many connections, read-only after a fail-over, a
transaction that was silent for too long."""
BUSY_ON_SQLITE: Final = ("database is locked", "database table is locked", "database schema is locked")
AWAY_ON_SQLITE: Final = ("disk i/o error", "unable to open database file")


CHECK_CREDENTIALS: Final = (
    "see that the user in [database] url is right, and its password: there, in password_file or in PEERD_DATABASE_URL"
)
CREATE_DATABASE: Final = "create it, e.g. CREATE DATABASE peerd, and let the user use it"
GRANT_PRIVILEGES: Final = "let the user read and write peerd's tables (GRANT)"
ALLOW_HOST: Final = "let the user connect from this machine (the user's host on MySQL, pg_hba.conf on PostgreSQL)"
CHECK_FILE_ACCESS: Final = "its folder must be there, and both must be writable for this user"
FREE_DISK_SPACE: Final = "free space on the disk of the database; what waits is written then"
NOT_A_DATABASE: Final = "the file is something else; give [database] url another one"

REFUSED_ON_MYSQL: Final = {
    1021: FREE_DISK_SPACE,
    1044: GRANT_PRIVILEGES,
    1045: CHECK_CREDENTIALS,
    1049: CREATE_DATABASE,
    1114: FREE_DISK_SPACE,
    1130: ALLOW_HOST,
    1142: GRANT_PRIVILEGES,
    1143: GRANT_PRIVILEGES,
    1227: GRANT_PRIVILEGES,
    1698: CHECK_CREDENTIALS,
}
REFUSED_ON_POSTGRESQL: Final = {
    "28000": CHECK_CREDENTIALS,
    "28P01": CHECK_CREDENTIALS,
    "3D000": CREATE_DATABASE,
    "42501": GRANT_PRIVILEGES,
    "53100": FREE_DISK_SPACE,
}
REFUSED_BY_MESSAGE: Final = (
    # libpq does not tell the SQLSTATE of a connection that failed, and SQLite has none
    (re.compile(r"password authentication failed|no password supplied"), CHECK_CREDENTIALS),
    (re.compile(r'role ".*" (does not exist|is not permitted to log in)'), CHECK_CREDENTIALS),
    (re.compile(r'database ".*" does not exist'), CREATE_DATABASE),
    (re.compile(r"permission denied for database"), GRANT_PRIVILEGES),
    (re.compile(r"no pg_hba\.conf entry"), ALLOW_HOST),
    (re.compile(r"^unable to open database file|^attempt to write a readonly database"), CHECK_FILE_ACCESS),
    (re.compile(r"^file is not a database"), NOT_A_DATABASE),
    (re.compile(r"^database or disk is full"), FREE_DISK_SPACE),
)


def error_code(error: DBAPIError) -> int | str | None:
    """The driver's own number or SQLSTATE, where it has one."""
    original = error.orig
    first = original.args[0] if original is not None and original.args else None
    if isinstance(first, int):  # before the SQLSTATE: MySQL's says less, and PyMySQL tells both since 1.2
        return first
    state = getattr(original, "sqlstate", None)
    return state if isinstance(state, str) else None


def was_rolled_back(error: Exception) -> bool:
    """Whether the database undid the transaction, so that it may be tried again as a whole."""
    if not isinstance(error, DBAPIError):
        return False
    code = error_code(error)
    if code in ROLLED_BACK_ON_MYSQL or code in ROLLED_BACK_ON_POSTGRESQL:
        return True
    return isinstance(error, OperationalError) and str(error.orig).lower().startswith(BUSY_ON_SQLITE)


def was_cancelled(error: Exception) -> bool:
    """Whether somebody, or a time limit of the server, ended a statement: it did nothing, and may be tried again."""
    return isinstance(error, DBAPIError) and error_code(error) in CANCELLED


def is_lock_timeout(error: Exception) -> bool:
    """Whether a row was waited for that the transaction of another session holds, for as long as is waited at most."""
    return isinstance(error, DBAPIError) and error_code(error) in LOCK_TIMED_OUT


def refusal_remedy(error: Exception) -> str | None:
    """What a person can do, where a database answers and does not let us in; None where that is not the fault."""
    if not isinstance(error, DBAPIError):
        return None
    match error_code(error):
        case int() as number:
            return REFUSED_ON_MYSQL.get(number)
        case str() as state:
            return REFUSED_ON_POSTGRESQL.get(state)
        case _:
            message = str(error.orig)
            return next((remedy for pattern, remedy in REFUSED_BY_MESSAGE if pattern.search(message)), None)


def clear_traceback_frames(error: BaseException) -> None:
    """Free what the functions that an exception came through had in their variables, the exception itself among it.

    PyMySQL, psycopg and SQLAlchemy keep an exception in a variable of a function that it leaves: error, traceback,
    frame and variable are a cycle, with the half-made connection in it, which only the garbage collector frees. A
    process that asks for a database that is away makes few other objects, so the collector comes after hours. The
    traceback keeps its lines.
    """
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            left += (one.__cause__, one.__context__)


def is_missing_table(error: DBAPIError) -> bool:
    """Whether a statement names a table that is not there."""
    return error_code(error) in (1146, "42P01") or str(error.orig).startswith("no such table: ")


def driver_message(error: Exception) -> str:
    """What the driver said, in one line."""
    lines = [line.strip() for line in str(getattr(error, "orig", None) or error).splitlines()]
    return "; ".join(line for line in lines if line)


def is_away(error: Exception) -> bool:
    """Whether the database could not be reached, or stopped answering in the middle."""
    if isinstance(error, PoolTimeout):
        return True
    if not isinstance(error, DBAPIError):
        return False
    code = error_code(error)
    if error.connection_invalidated or code in AWAY_ON_MYSQL:
        return True
    if isinstance(code, str):
        return code.startswith(AWAY_ON_POSTGRESQL)
    text = str(error.orig).lower()
    if type(error.orig).__module__.startswith("psycopg"):
        return isinstance(error, OperationalError)  # without a SQLSTATE: the connection itself failed
    return isinstance(error, OperationalError) and text.startswith(AWAY_ON_SQLITE)
