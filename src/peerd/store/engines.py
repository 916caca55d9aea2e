"""An engine per database: isolation, time zone, durability, time-outs. Nothing else knows the drivers."""

from __future__ import annotations

import random
import sqlite3
import time
from functools import partial
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import NoSuchModuleError

from peerd.config.address import normalise_url
from peerd.domain.errors import UnsupportedDatabase

CONNECT_TIMEOUT: Final = 10
ANSWER_TIMEOUT: Final = 60
"""Seconds without an answer after which a server counts as away: a cut cable says nothing at all."""
LOCK_TIMEOUT: Final = 30
"""Seconds that a statement waits for another one's locks on PostgreSQL; InnoDB's own limit is 50."""
BUSY_TIMEOUT: Final = 30
"""Seconds that a writer waits for another one on SQLite."""
LOCK_PAUSE: Final = (0.0005, 0.006)
"""Seconds between two looks for SQLite's lock, at random."""
OLDEST: Final = {"mysql": (8, 0, 1), "mariadb": (10, 6), "postgresql": (12,), "sqlite": (3, 35)}
"""Versions that have what our statements say: SKIP LOCKED, stored generated columns, RETURNING where it is used."""
READ_ONLY: Final = "peerd_read_only"
"""Execution option: this transaction only reads, so on SQLite it need not wait for the writer."""

TEXT: Final = partial(str, encoding="utf-8", errors="replace")
"""How a text of SQLite is read: it holds whatever bytes a program in another language has called text, and one such row
must not keep all others from being read."""


def normalised(url: str | URL) -> URL:
    """A database's URL with the driver that peerd uses.

    Raises:
        UnsupportedDatabase: it is not one that peerd can use.

    >>> str(normalised("postgres://peerd@db/peerd"))
    'postgresql+psycopg://peerd@db/peerd'
    """
    text = url.render_as_string(hide_password=False) if isinstance(url, URL) else url
    try:
        return make_url(normalise_url(text))
    except ValueError as error:
        raise UnsupportedDatabase(str(error)) from None


def open_engine(url: URL, pool_size: int) -> Engine:
    """An engine for a normalised URL. Nothing connects yet.

    Raises:
        UnsupportedDatabase: its driver is not installed; the error names the extra that brings it.
    """
    try:
        match url.get_backend_name():
            case "mysql" | "mariadb":
                return _mysql(url, pool_size)
            case "postgresql":
                return _postgresql(url, pool_size)
            case _:
                return _sqlite(url, pool_size)
    except (ImportError, NoSuchModuleError) as error:
        extra = "postgresql" if url.get_backend_name() == "postgresql" else "mysql"
        raise UnsupportedDatabase(
            f"the driver for {url.drivername} is missing ({error}): pip install 'peerd[{extra}]'"
        ) from error


def require_version(connection: Connection) -> None:
    """See that the database is not too old.

    Raises:
        UnsupportedDatabase: it is; the error says which version is needed.
    """
    dialect = connection.dialect
    name = "mariadb" if getattr(dialect, "is_mariadb", False) else dialect.name
    found = getattr(dialect, "server_version_info", None)
    if name == "sqlite":
        found = tuple(
            int(part) for part in connection.exec_driver_sql("SELECT sqlite_version()").scalar_one().split(".")
        )
    if found is not None and found[:3] < OLDEST[name]:
        needed, given = (".".join(str(part) for part in parts) for parts in (OLDEST[name], found))
        raise UnsupportedDatabase(f"{name} {given} is too old: peerd needs {needed} or later")


def _server_options(pool_size: int) -> dict[str, Any]:
    return {
        "pool_size": pool_size,
        "max_overflow": pool_size,
        "pool_pre_ping": True,
        "pool_recycle": 1800,
        "pool_timeout": ANSWER_TIMEOUT,
        # Under REPEATABLE READ even an empty poll blocks inserts on InnoDB.
        "isolation_level": "READ COMMITTED",
    }


def _mysql(url: URL, pool_size: int) -> Engine:
    arguments: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT, "charset": "utf8mb4"}
    arguments["init_command"] = "SET time_zone = '+00:00'"
    arguments |= {"read_timeout": ANSWER_TIMEOUT, "write_timeout": ANSWER_TIMEOUT}
    return sa.create_engine(url, connect_args=arguments, **_server_options(pool_size))


def _postgresql(url: URL, pool_size: int) -> Engine:
    arguments = {
        "connect_timeout": CONNECT_TIMEOUT,
        "options": f"-c timezone=UTC -c lock_timeout={LOCK_TIMEOUT}s",
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 4,
        "tcp_user_timeout": ANSWER_TIMEOUT * 1000,
    }
    engine = sa.create_engine(url, connect_args=arguments, **_server_options(pool_size))

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, record: Any) -> None:
        from peerd.store.timestamps import read_every_moment  # noqa: PLC0415 - it needs the driver

        read_every_moment(connection)

    return engine


def _sqlite(url: URL, pool_size: int) -> Engine:
    engine = sa.create_engine(
        url,
        connect_args={"timeout": BUSY_TIMEOUT, "check_same_thread": False},
        pool_size=pool_size,
        max_overflow=pool_size,
        poolclass=sa.QueuePool,
    )

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself
        connection.text_factory = TEXT
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")  # accepted means accepted
        cursor.close()

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        # A writer that began as a reader and finds another writer fails at once, whatever its time-out.
        if connection.get_execution_options().get(READ_ONLY, False):
            connection.exec_driver_sql("BEGIN")
        else:
            _begin_writing(connection)

    return engine


def _begin_writing(connection: Connection) -> None:
    """Take the writer's lock, in turn as far as chance is fair.

    SQLite itself looks for it at once, and then less and less often, down to each 100 ms: a writer that has waited is
    overtaken by all who come later. Measured with 14 writers of tiny transactions: 2.0 s at the worst, 0.16 s this way.
    """
    driver = connection.connection.dbapi_connection
    assert driver is not None
    patience = time.monotonic() + BUSY_TIMEOUT
    driver.execute("PRAGMA busy_timeout = 0")
    try:
        while time.monotonic() < patience and _finds_it_locked(driver):
            time.sleep(random.uniform(*LOCK_PAUSE))
        if not driver.in_transaction:
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # once more, for an error that is worded as all others are
    finally:
        driver.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT * 1000:.0f}")


def _finds_it_locked(driver: Any) -> bool:
    """Try to begin; whether another writer kept it from that."""
    try:
        driver.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
    return False
