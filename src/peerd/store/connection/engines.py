"""The engines of a database: isolation level, time zone, durability, time-outs. The drivers are known only here."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine, ExceptionContext, make_url
from sqlalchemy.exc import DBAPIError, DisconnectionError, NoSuchModuleError

from peerd.config.address import hosts_of, normalise_url
from peerd.domain.errors import UnsupportedDatabase
from peerd.store.connection import galera
from peerd.store.connection.database_errors import error_code
from peerd.store.connection.failover import FailoverHosts, Host
from peerd.store.connection.pool_liveness import ShrinkingPool, check_idle_connections
from peerd.store.connection.postgresql_sessions import set_up
from peerd.store.connection.sqlite_groups import IN_GROUP
from peerd.store.connection.sqlite_lock import BUSY_TIMEOUT
from peerd.store.schema.types import is_mariadb, parse_timestamp
from peerd.store.statements.autocommit import AutocommitConnection

CONNECT_TIMEOUT: Final = 10
RESPONSE_TIMEOUT: Final = 60
"""Seconds without an answer after which a server counts as away: a lost network sends no error."""
IDLE_TRANSACTION_TIMEOUT: Final = 10
"""Seconds after which servers end an idle transaction: they notice the loss of a client's machine only hours later, and
its transaction may hold locks. MySQL ends any idle connection for transactions then: it knows no difference."""
LOCK_TIMEOUT: Final = 30
"""Seconds that a statement waits for a lock on PostgreSQL; InnoDB's own limit is 50."""
SHORT_LOCK_TIMEOUT: Final = 1
"""The same for statements that commit by themselves, on InnoDB too: a statement about all tasks of a process must not
wait for the one row that another session holds. Whole seconds, for MySQL."""
IS_OPEN: Final = "peerd_is_open"
"""In a connection's ``info``: whether a transaction has begun and not ended."""
MINIMUM_VERSIONS: Final = {"mysql": (8, 0, 19), "mariadb": (10, 6), "postgresql": (12,), "sqlite": (3, 35)}
"""They have SKIP LOCKED, stored generated columns, and RETURNING where it is used."""
HOST: Final = "peerd_host"
"""In a connection's ``info``: its server."""
GENERIC_PLAN_SETTINGS: Final = {"plan_cache_mode": "force_generic_plan"} | dict.fromkeys(
    ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin"), "off"
)
"""Settings of PostgreSQL for statements that are planned once. A plan made for an empty table would read it whole, or
all of an index, and stay so until the table is analyzed; a plan by an index, row by row, is right for every size."""
UNUSABLE_SERVER_ERRORS: Final = frozenset({galera.NOT_READY, 1290, 1836})
"""MySQL's errors of servers that answer and cannot be used: not ready, or left read-only by a fail-over."""
LARGEST_IDLE_WAL: Final = 16 * 1024 * 1024
"""Bytes that SQLite's log keeps after a reader or a large transaction has made it larger."""
READ_ONLY: Final = "peerd_read_only"
"""Execution option: this transaction only reads, so on SQLite it does not wait for the writer."""
LENIENT_TEXT: Final = partial(str, encoding="utf-8", errors="replace")
"""Reads a text of SQLite, which may hold any bytes: one such row must not make the others unreadable."""


def with_driver(url: str | URL) -> URL:
    """A database's URL with the driver that peerd uses.

    Raises:
        UnsupportedDatabase: peerd does not support this database.

    >>> str(with_driver("postgres://peerd@db/peerd"))
    'postgresql+psycopg://peerd@db/peerd'
    """
    text = url.render_as_string(hide_password=False) if isinstance(url, URL) else url
    try:
        return make_url(normalise_url(text))
    except ValueError as error:
        raise UnsupportedDatabase(str(error)) from None


class Engines(NamedTuple):
    """The engines of one database; they differ in their transactions and settings."""

    transactions: Engine
    """For transactions that write."""
    statements: Engine
    """Commits each statement, which saves two round trips per transaction; on SQLite, which has none, it begins
    transactions that only read."""
    groups: Engine
    """For transactions in which the operations of many queue clients are committed together. No statement of them waits
    long for a lock, because all of them would wait; they are planned and checked as those of the hot path."""
    undurable_groups: Engine
    """The same, of which a failure of the server may undo the last ones; on PostgreSQL only."""
    hot_path: Engine
    """For the few operations that write thousands of rows a second, with values of the database only. SQLite checks no
    CHECK there, which took half of their time. PostgreSQL plans each of their statements once instead of at each
    execution (it does so for a LIMIT whose value it knows), which took a third of a claim of ten. MySQL does neither.
    """

    def distinct_pools(self) -> tuple[Engine, ...]:
        """The engines with pools of their own."""
        return tuple({id(engine.pool): engine for engine in reversed(self)}.values())[::-1]


def open_engines(url: URL, pool_size: int, *, response_timeout: int | None = None) -> Engines:
    """The engines for a URL. Nothing connects yet.

    Args:
        url: from `with_driver`.
        pool_size: connections that all engines together keep.
        response_timeout: seconds that a statement on MySQL may take, `RESPONSE_TIMEOUT` by default. On PostgreSQL,
            TCP keepalives detect a lost server, however long a statement takes.

    Raises:
        UnsupportedDatabase: its driver is not installed; the error names the extra to install.
    """
    try:
        match url.get_backend_name():
            case "mysql" | "mariadb":
                hosts = FailoverHosts(hosts_of(url))
                mysql = partial(_mysql, url, hosts, pool_size, response_timeout or RESPONSE_TIMEOUT)
                statements, groups = mysql(autocommit=True), mysql(autocommit=False, waits_for_locks=False)
                return Engines(mysql(autocommit=False), statements, groups, groups, statements)
            case "postgresql":
                postgresql = partial(_postgresql, url, pool_size)
                planned_once = partial(postgresql, waits_for_locks=False, settings=GENERIC_PLAN_SETTINGS)
                undurable = GENERIC_PLAN_SETTINGS | {"synchronous_commit": "off"}
                return Engines(
                    transactions=postgresql(autocommit=False),
                    statements=postgresql(autocommit=True, waits_for_locks=False),
                    groups=planned_once(autocommit=False),
                    undurable_groups=planned_once(autocommit=False, settings=undurable),
                    hot_path=planned_once(autocommit=True),
                )
            case _:
                engine, hot_path = _sqlite(url, pool_size), _sqlite(url, pool_size, check_constraints=False)
                return Engines(engine, engine.execution_options(**{READ_ONLY: True}), hot_path, hot_path, hot_path)
    except (ImportError, NoSuchModuleError) as error:
        extra = "postgresql" if url.get_backend_name() == "postgresql" else "mysql"
        raise UnsupportedDatabase(
            f"the driver for {url.drivername} is missing ({error}): pip install 'peerd[{extra}]'"
        ) from error


def require_version(connection: Connection) -> None:
    """Check the version of the database.

    Raises:
        UnsupportedDatabase: it is too old; the error says which version is needed.
    """
    dialect = connection.dialect
    name = "mariadb" if is_mariadb(dialect) else dialect.name
    found = getattr(dialect, "server_version_info", None)
    if name == "sqlite":
        text = connection.exec_driver_sql("SELECT sqlite_version()").scalar_one()
        found = tuple(int(part) for part in text.split("."))
    if found is not None and found[:3] < MINIMUM_VERSIONS[name]:
        needed, given = (".".join(str(part) for part in parts) for parts in (MINIMUM_VERSIONS[name], found))
        raise UnsupportedDatabase(f"{name} {given} is too old: peerd needs {needed} or later")


def _server_engine(url: URL, pool_size: int, arguments: dict[str, Any], *, autocommit: bool, **more: Any) -> Engine:
    return sa.create_engine(
        url,
        connect_args=arguments,
        poolclass=ShrinkingPool,
        pool_size=(pool_size + 1) // 2,
        max_overflow=pool_size,
        pool_recycle=1800,
        pool_timeout=RESPONSE_TIMEOUT,
        pool_use_lifo=True,  # the connection that was used last rarely needs a liveness check
        # Under REPEATABLE READ even an empty poll blocks inserts on InnoDB.
        isolation_level="AUTOCOMMIT" if autocommit else "READ COMMITTED",
        skip_autocommit_rollback=True,
        **more,
    )


def _mysql(
    url: URL,
    hosts: FailoverHosts,
    pool_size: int,
    response_timeout: int,
    *,
    autocommit: bool,
    waits_for_locks: bool | None = None,
) -> Engine:
    idle = f"/*M!100300 , idle_transaction_timeout = {IDLE_TRANSACTION_TIMEOUT} */"  # a comment to all but MariaDB
    if not autocommit:  # a comment to MariaDB
        idle += f"/*!80000 , wait_timeout = {IDLE_TRANSACTION_TIMEOUT} */"
    waits_for_locks = not autocommit if waits_for_locks is None else waits_for_locks
    lock = "" if waits_for_locks else f", innodb_lock_wait_timeout = {SHORT_LOCK_TIMEOUT}"
    arguments = {
        "connect_timeout": CONNECT_TIMEOUT,
        "charset": "utf8mb4",
        "init_command": f"SET time_zone = '+00:00' {idle} {lock}",
        "read_timeout": response_timeout,
        "write_timeout": RESPONSE_TIMEOUT,
        "conv": _conversions(url),
    }
    one_host = url.difference_update_query(["host"])
    engine = _server_engine(one_host, pool_size, arguments, autocommit=autocommit, pool_reset_on_return=None)
    _connect_with_failover(hosts, engine)

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, record: Any) -> None:
        with closing(connection.cursor()) as cursor:  # SQLAlchemy does not set it for AUTOCOMMIT
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")

    if not autocommit:
        _roll_back_open_transactions(engine)

    @event.listens_for(engine, "handle_error")
    def on_error(context: ExceptionContext) -> None:
        error = context.sqlalchemy_exception
        if isinstance(error, DBAPIError) and error_code(error) in UNUSABLE_SERVER_ERRORS:
            context.is_disconnect = True  # the connection is intact, but another server is needed

    check_idle_connections(engine)
    return engine


def _roll_back_open_transactions(engine: Engine) -> None:
    """Roll back only connections that are returned in the middle of a transaction: others need no round trip."""

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        connection.info[IS_OPEN] = True

    @event.listens_for(engine, "commit")
    @event.listens_for(engine, "rollback")
    def on_end(connection: Connection) -> None:
        if not connection.invalidated:
            connection.info[IS_OPEN] = False  # a commit that fails is followed by a rollback

    @event.listens_for(engine, "reset")
    def on_reset(connection: Any, record: Any, state: Any) -> None:
        if record is None or record.info.get(IS_OPEN, True):
            connection.rollback()


def _conversions(url: URL) -> dict[Any, Any]:
    """The driver's conversions, with timestamps read as aware datetimes: the sessions are at UTC."""
    if url.get_driver_name() == "mysqldb":
        from MySQLdb.constants import FIELD_TYPE  # noqa: PLC0415 - drivers are imported when they are used
        from MySQLdb.converters import conversions  # noqa: PLC0415
    else:
        from pymysql.constants import FIELD_TYPE  # noqa: PLC0415
        from pymysql.converters import conversions  # noqa: PLC0415
    return {**conversions, FIELD_TYPE.TIMESTAMP: parse_timestamp}


def _connect_with_failover(hosts: FailoverHosts, engine: Engine) -> None:
    """Let all connections of an engine go to the server that `FailoverHosts` selects."""
    connect: Callable[..., Any] = engine.dialect.connect
    if engine.driver == "pymysql":
        from peerd.store.connection.pymysql_tls import SharedTlsConnection as connect  # noqa: N813, PLC0415 - the driver

    @event.listens_for(engine, "do_connect")
    def do_connect(dialect: Any, record: Any, arguments: list[Any], parameters: dict[str, Any]) -> Any:
        def connect_to(host: Host) -> Any:
            named = {name: value for name, value in zip(("host", "port"), host, strict=True) if value is not None}
            connection = connect(*arguments, **(parameters | named))
            try:
                record.info[galera.IS_MEMBER] = galera.check_ready(dialect.dbapi, connection)
            except BaseException:
                connection.close()
                raise
            record.info[HOST] = host
            return connection

        return hosts.connect(connect_to, dialect.dbapi.Error)

    @event.listens_for(engine, "checkout")
    def on_checkout(connection: Any, record: Any, proxy: Any) -> None:
        if record.info[HOST] != hosts.current:
            raise DisconnectionError(f"its server is {record.info[HOST]}; the server in use is {hosts.current}")


def _postgresql(
    url: URL, pool_size: int, *, autocommit: bool, waits_for_locks: bool = True, settings: dict[str, str] | None = None
) -> Engine:
    session_settings = {
        "timezone": "UTC",
        "lock_timeout": f"{LOCK_TIMEOUT if waits_for_locks else SHORT_LOCK_TIMEOUT}s",
        "idle_in_transaction_session_timeout": f"{IDLE_TRANSACTION_TIMEOUT}s",
        **(settings or {}),
    }
    arguments: dict[str, Any] = {
        "connect_timeout": CONNECT_TIMEOUT,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 4,
        "tcp_user_timeout": RESPONSE_TIMEOUT * 1000,
    }
    if isinstance(url.query.get("host"), tuple) and "target_session_attrs" not in url.query:
        arguments["target_session_attrs"] = "read-write"  # a standby accepts connections, and refuses every write
    engine = _server_engine(url, pool_size, arguments, autocommit=autocommit)

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, record: Any) -> None:
        from peerd.store.connection.postgresql_timestamps import use_lenient_timestamps  # noqa: PLC0415 - the driver

        use_lenient_timestamps(connection)
        set_up(connection, record.info, session_settings)

    check_idle_connections(engine)
    return engine


def _sqlite(url: URL, pool_size: int, *, check_constraints: bool = True) -> Engine:
    engine = sa.create_engine(
        url,
        connect_args={"timeout": BUSY_TIMEOUT, "check_same_thread": False},
        pool_size=(pool_size + 1) // 2,
        max_overflow=pool_size,
        poolclass=ShrinkingPool,
    )

    @event.listens_for(engine, "do_connect")
    def do_connect(dialect: Any, record: Any, arguments: list[Any], parameters: dict[str, Any]) -> None:
        _create_private_file(url.database)

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # the driver begins no transactions
        connection.text_factory = LENIENT_TEXT
        with closing(connection.cursor()) as cursor:
            cursor.execute("PRAGMA journal_mode = WAL")
            cursor.execute(f"PRAGMA journal_size_limit = {LARGEST_IDLE_WAL}")
            cursor.execute("PRAGMA synchronous = FULL")  # an enqueued task survives a power failure
            if not check_constraints:
                cursor.execute("PRAGMA ignore_check_constraints = ON")

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        # A reader that becomes a writer while there is another writer fails at once, whatever the time-out.
        if connection.info.get(IN_GROUP, False):
            return
        if connection.get_execution_options().get(READ_ONLY, False):
            connection.exec_driver_sql("BEGIN")
        else:
            AutocommitConnection(connection).exec_driver_sql("BEGIN IMMEDIATE", ())

    return engine


def _create_private_file(file: str | None) -> None:
    """Create the database file with mode 0600; SQLite creates its other files with the same mode.

    Task bodies are private, and even a read lock on a file can stop the queue. An existing file is not opened: closing
    it again would drop all POSIX locks of this process on it, and with them what protects the log of its connections
    (https://www.sqlite.org/howtocorrupt.html, 2.2).
    """
    if file and file != ":memory:" and not file.startswith("file:"):
        with suppress(OSError):  # SQLite reports it
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
