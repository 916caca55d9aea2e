"""The meaning of a database's error: rolled back (can be repeated), cancelled, refused (with a remedy), or away."""

from __future__ import annotations

import re
import traceback
from typing import Final

from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

ROLLED_BACK: Final = frozenset(
    {
        1020,  # a row changed since it was read (MariaDB 11.6 on, with innodb_snapshot_isolation)
        1205,  # lock wait time-out; only the statement is undone, so the transaction must be rolled back
        1213,  # deadlock; on Galera also a lost certification, at COMMIT
        3101,  # a lost certification, on MySQL's Group Replication
        3572,  # NOWAIT met a lock
        "40001",  # serialization failure
        "40P01",  # deadlock
        "55P03",  # lock not available
    }
)
"""MySQL's error numbers and PostgreSQL's SQLSTATEs, here and below."""
PROTOCOL_VIOLATION: Final = "08P01"
"""The SQLSTATE of everything that a pooler refuses."""
BUSY_ON_SQLITE: Final = ("database is locked", "database table is locked", "database schema is locked")
CANCELLED: Final = frozenset(
    {
        1317,  # KILL QUERY
        1969,  # MariaDB's max_statement_time
        3024,  # MySQL's max_execution_time
        "57014",  # pg_cancel_backend(), or statement_timeout
    }
)
LOCK_TIMED_OUT: Final = frozenset({1205, "55P03"})
AWAY_ON_MYSQL: Final = frozenset(
    # too many connections, for the server (1040, 1129, 1135) or the user; a Galera node that is not ready, shutdown,
    # aborted connections, network errors; left read-only by a fail-over (1290, 1836); killed; cannot connect, lost
    # connection; offline mode, a session that was ended, disconnected for inactivity
    {1040, 1129, 1135, 1203, 1226, 1047, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161}
    | {1290, 1836, 1927, 2002, 2003, 2006, 2013, 2055, 3032, 3168, 4031}
)
AWAY_ON_POSTGRESQL: Final = ("08", "57P0", "53300", "25006", "25P03")
"""Prefixes of SQLSTATEs: connection errors, shutdown and start-up, too many connections, read-only after a fail-over,
idle-in-transaction time-out."""
AWAY_ON_SQLITE: Final = ("disk i/o error", "unable to open database file")

CHECK_CREDENTIALS: Final = (
    "see that the user in [database] url is right, and its password: there, in password_file or in PEERD_DATABASE_URL"
)
CREATE_DATABASE: Final = "if there is none, CREATE DATABASE peerd; and let the user use it (GRANT)"
GRANT_PRIVILEGES: Final = "let the user read and write peerd's tables, and create them for peerd migrate (GRANT)"
USE_ROW_FORMAT: Final = "set binlog_format = ROW on the server; with STATEMENT it takes no write of READ COMMITTED"
ALLOW_HOST: Final = "let the user connect from this machine (the user's host on MySQL, pg_hba.conf on PostgreSQL)"
UNLOCK_ACCOUNT: Final = "unlock the user (ALTER USER … ACCOUNT UNLOCK)"
RENEW_LOGIN: Final = "the password has expired: give the user a new one (ALTER USER … IDENTIFIED BY …)"
USE_TLS: Final = "the server demands TLS: name its certificate in [database] url, ?ssl_ca=FILE"
CHECK_FILE_ACCESS: Final = "its folder must be there, and both must be writable for this user"
FREE_DISK_SPACE: Final = "free space on the disk of the database; what waits is written then"
POOL_TRANSACTIONS: Final = (
    "this is a pooler (PgBouncer) that lets through single statements: set pool_mode = transaction or session there"
)
CONFIGURE_POOLER: Final = "this is a pooler (PgBouncer): name the database in its own configuration, and see its log"
NO_START_OPTIONS: Final = (
    "this is a pooler (PgBouncer), which takes no options: leave them out of [database] url; ALTER ROLE … SET does it"
)
NOT_A_DATABASE: Final = "the file is something else; give [database] url another one"

REFUSED: Final[dict[int | str, str]] = {
    **dict.fromkeys((1045, 1698, "28000", "28P01"), CHECK_CREDENTIALS),
    **dict.fromkeys((1044, 1049, "3D000"), CREATE_DATABASE),
    **dict.fromkeys((1142, 1143, 1227, "42501"), GRANT_PRIVILEGES),
    **dict.fromkeys((1021, 1114, "53100"), FREE_DISK_SPACE),
    1130: ALLOW_HOST,
    1665: USE_ROW_FORMAT,
    3118: UNLOCK_ACCOUNT,
    3159: USE_TLS,
    **dict.fromkeys((1820, 1862), RENEW_LOGIN),
}
REFUSED_BY_MESSAGE: Final = (
    # libpq reports no SQLSTATE for a connection that failed, and SQLite has none
    (re.compile(r"password authentication failed|no password supplied"), CHECK_CREDENTIALS),
    (re.compile(r'role ".*" (does not exist|is not permitted to log in)'), CHECK_CREDENTIALS),
    (re.compile(r'database ".*" does not exist'), CREATE_DATABASE),
    (re.compile(r"permission denied for database"), GRANT_PRIVILEGES),
    (re.compile(r"no pg_hba\.conf entry"), ALLOW_HOST),
    (re.compile(r"in statement pooling mode"), POOL_TRANSACTIONS),
    (re.compile(r"no such database: |bouncer config error"), CONFIGURE_POOLER),
    (re.compile(r"unsupported startup parameter"), NO_START_OPTIONS),
    (re.compile(r"^unable to open database file|^attempt to write a readonly database"), CHECK_FILE_ACCESS),
    (re.compile(r"^file is not a database"), NOT_A_DATABASE),
    (re.compile(r"^database or disk is full"), FREE_DISK_SPACE),
)


def error_code(error: DBAPIError) -> int | str | None:
    """MySQL's error number or the SQLSTATE, if the driver reports one."""
    original = error.orig
    first = original.args[0] if original is not None and original.args else None
    if isinstance(first, int):  # PyMySQL has both since 1.2, and the number says more
        return first
    state = getattr(original, "sqlstate", None)
    return state if isinstance(state, str) else None


def was_rolled_back(error: Exception) -> bool:
    """Whether the database undid the transaction, so that it can be repeated as a whole."""
    if not isinstance(error, DBAPIError):
        return False
    if error_code(error) in ROLLED_BACK:
        return True
    return isinstance(error, OperationalError) and str(error.orig).lower().startswith(BUSY_ON_SQLITE)


def was_cancelled(error: Exception) -> bool:
    """Whether a command or a time limit of the server ended a statement: it did nothing, and can be repeated."""
    return isinstance(error, DBAPIError) and error_code(error) in CANCELLED


def is_lock_timeout(error: Exception) -> bool:
    """Whether the lock of another session was waited for up to the limit."""
    return isinstance(error, DBAPIError) and error_code(error) in LOCK_TIMED_OUT


def refusal_remedy(error: Exception) -> str | None:
    """The remedy where the database answers and refuses; None for other errors."""
    if not isinstance(error, DBAPIError):
        return None
    code = error_code(error)
    if code not in (None, PROTOCOL_VIOLATION):
        return REFUSED.get(code)
    return next((remedy for pattern, remedy in REFUSED_BY_MESSAGE if pattern.search(str(error.orig))), None)


def clear_traceback_frames(error: BaseException) -> None:
    """Free the local variables of the functions that an exception came through; the traceback keeps its lines.

    PyMySQL, psycopg and SQLAlchemy hold an exception in a local variable: error, traceback, frame and variable form a
    cycle with the half-made connection in it, about 850 KB, which only the garbage collector frees. A process that
    retries during an outage creates few other objects, so the collector runs hours later.
    """
    seen: set[int] = set()
    remaining: list[BaseException | None] = [error]
    while remaining:
        current = remaining.pop()
        if current is not None and id(current) not in seen:
            seen.add(id(current))
            traceback.clear_frames(current.__traceback__)
            remaining += (current.__cause__, current.__context__)


def is_missing_table(error: DBAPIError) -> bool:
    """Whether a statement names a table that does not exist."""
    return error_code(error) in (1146, "42P01") or str(error.orig).startswith("no such table: ")


def driver_message(error: Exception) -> str:
    """The driver's message, in one line."""
    lines = [line.strip() for line in str(getattr(error, "orig", None) or error).splitlines()]
    return "; ".join(line for line in lines if line)


def is_away(error: Exception) -> bool:
    """Whether the database could not be reached, or the connection was lost."""
    if isinstance(error, PoolTimeout):
        return True
    if not isinstance(error, DBAPIError):
        return False
    code = error_code(error)
    if error.connection_invalidated or code in AWAY_ON_MYSQL:
        return True
    if isinstance(code, str):
        return code.startswith(AWAY_ON_POSTGRESQL)
    if type(error.orig).__module__.startswith("psycopg"):
        return isinstance(error, OperationalError)  # without a SQLSTATE: the connection itself failed
    return isinstance(error, OperationalError) and str(error.orig).lower().startswith(AWAY_ON_SQLITE)
