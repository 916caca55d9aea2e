"""An engine per database: isolation, time zone, durability, time-outs. Nothing else knows the drivers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
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
from peerd.store.connection.pool_liveness import check_idle_connections
from peerd.store.connection.sqlite_lock import BUSY_TIMEOUT
from peerd.store.schema.types import parse_timestamp
from peerd.store.statements.autocommit import AutocommitConnection

CONNECT_TIMEOUT: Final = 10
RESPONSE_TIMEOUT: Final = 60
"""Seconds without an answer after which a server counts as away: a cut cable says nothing at all."""
IDLE_TRANSACTION_TIMEOUT: Final = 10
"""Seconds after which PostgreSQL and MariaDB end a transaction in which nothing is said any more: they do not learn for
hours that a machine is lost, and it may have locked what others wait for. MySQL cannot be told so."""
LOCK_TIMEOUT: Final = 30
"""Seconds that a statement waits for another one's locks on PostgreSQL; InnoDB's own limit is 50."""
SHORT_LOCK_TIMEOUT: Final = 1
"""The same for statements that commit by themselves, on InnoDB too: what a process says of all its tasks at once must
not stand still for the one row that somebody's open transaction holds. Whole seconds, for MySQL."""
IS_OPEN: Final = "peerd_is_open"
"""In a connection's ``info``: whether a transaction has begun and not ended."""
MINIMUM_VERSIONS: Final = {"mysql": (8, 0, 1), "mariadb": (10, 6), "postgresql": (12,), "sqlite": (3, 35)}
"""Versions that have what our statements say: SKIP LOCKED, stored generated columns, RETURNING where it is used."""
HOST: Final = "peerd_host"
"""In a connection's ``info``: its server."""
GENERIC_PLAN_SETTINGS: Final = {"plan_cache_mode": "force_generic_plan"} | dict.fromkeys(
    ("enable_seqscan", "enable_hashjoin", "enable_mergejoin"), "off"
)
"""Settings of PostgreSQL for statements that are planned once. The table may be empty then, and read whole: the plan
would stay so when a million rows have come, until it is analyzed. By an index, row by row, is right for either."""
UNUSABLE_SERVER_ERRORS: Final = frozenset({galera.NOT_READY, 1290, 1836})
"""MySQL's errors of servers that answer and cannot be worked with: not ready, or left read-only by a fail-over."""
READ_ONLY: Final = "peerd_read_only"
"""Execution option: this transaction only reads, so on SQLite it need not wait for the writer."""

LENIENT_TEXT: Final = partial(str, encoding="utf-8", errors="replace")
"""How a text of SQLite is read: it holds whatever bytes a program in another language has called text, and one such row
must not keep all others from being read."""


def with_driver(url: str | URL) -> URL:
    """A database's URL with the driver that peerd uses.

    Raises:
        UnsupportedDatabase: it is not one that peerd can use.

    >>> str(with_driver("postgres://peerd@db/peerd"))
    'postgresql+psycopg://peerd@db/peerd'
    """
    text = url.render_as_string(hide_password=False) if isinstance(url, URL) else url
    try:
        return make_url(normalise_url(text))
    except ValueError as error:
        raise UnsupportedDatabase(str(error)) from None


class Engines(NamedTuple):
    """The engines of one database: each begins its transactions in a way of its own."""

    transactions: Engine
    """For transactions that write."""
    statements: Engine
    """Commits each statement, which saves two round trips where a transaction would have one; on SQLite, where nothing
    is saved by that, it begins transactions that only read."""
    hot_path: Engine
    """For the few operations that write thousands of rows in a second, and no values but the database's own. SQLite
    asks no CHECK there, which took half of their time. PostgreSQL plans each of their statements once, and not again at
    each execution, as it does for a LIMIT whose number it may know: a third of a claim of ten. MySQL does neither."""

    def distinct_pools(self) -> tuple[Engine, ...]:
        """All that have connections of their own."""
        found: dict[int, Engine] = {}
        for engine in self:
            found.setdefault(id(engine.pool), engine)
        return tuple(found.values())


def open_engines(url: URL, pool_size: int, *, response_timeout: int | None = None) -> Engines:
    """The engines for a normalised URL. Nothing connects yet.

    Args:
        url: from `with_driver`.
        pool_size: connections that all of them together keep.
        response_timeout: seconds that a statement on MySQL may take; `RESPONSE_TIMEOUT` if not given. PostgreSQL's
            driver
            asks the system whether the server is still there, however long a statement takes.

    Raises:
        UnsupportedDatabase: its driver is not installed; the error names the extra that brings it.
    """
    plain, autocommit = (_server_options(pool_size, autocommit=autocommit) for autocommit in (False, True))
    try:
        match url.get_backend_name():
            case "mysql" | "mariadb":
                hosts = FailoverHosts(hosts_of(url))
                seconds = RESPONSE_TIMEOUT if response_timeout is None else response_timeout
                statements = _mysql(url, hosts, autocommit, seconds)
                return Engines(_mysql(url, hosts, plain, seconds), statements, statements)
            case "postgresql":
                hot_path = _postgresql(url, autocommit, generic_plans=True)
                return Engines(_postgresql(url, plain), _postgresql(url, autocommit), hot_path)
            case _:
                engine, hot_path = _sqlite(url, pool_size), _sqlite(url, pool_size, check_constraints=False)
                return Engines(engine, engine.execution_options(**{READ_ONLY: True}), hot_path)
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
    if found is not None and found[:3] < MINIMUM_VERSIONS[name]:
        needed, given = (".".join(str(part) for part in parts) for parts in (MINIMUM_VERSIONS[name], found))
        raise UnsupportedDatabase(f"{name} {given} is too old: peerd needs {needed} or later")


def _server_options(pool_size: int, *, autocommit: bool) -> dict[str, Any]:
    return {
        "pool_size": (pool_size + 1) // 2,
        "max_overflow": pool_size,
        "pool_recycle": 1800,
        "pool_timeout": RESPONSE_TIMEOUT,
        "pool_use_lifo": True,  # the one that was used last need not be asked whether it is still there
        # Under REPEATABLE READ even an empty poll blocks inserts on InnoDB.
        "isolation_level": "AUTOCOMMIT" if autocommit else "READ COMMITTED",
        "skip_autocommit_rollback": True,
    }


def _is_autocommit(options: Mapping[str, Any]) -> bool:
    """Whether an engine of these options commits each statement."""
    return bool(options["isolation_level"] == "AUTOCOMMIT")


def _mysql(url: URL, hosts: FailoverHosts, options: Mapping[str, Any], response_timeout: int) -> Engine:
    arguments: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT, "charset": "utf8mb4"}
    silence = f"/*M!100300 , idle_transaction_timeout = {IDLE_TRANSACTION_TIMEOUT} */"  # a comment to all but MariaDB
    short = f", innodb_lock_wait_timeout = {SHORT_LOCK_TIMEOUT}" if _is_autocommit(options) else ""
    arguments["init_command"] = f"SET time_zone = '+00:00' {silence} {short}"
    arguments |= {"read_timeout": response_timeout, "write_timeout": RESPONSE_TIMEOUT, "conv": _conversions(url)}
    one_host = url.difference_update_query(["host"])
    engine = sa.create_engine(one_host, connect_args=arguments, pool_reset_on_return=None, **options)
    _connect_with_failover(hosts, engine)

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, record: Any) -> None:
        with closing(connection.cursor()) as cursor:  # SQLAlchemy sets it too, but not where it commits each statement
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")

    if not _is_autocommit(options):
        _roll_back_open_transactions(engine)

    @event.listens_for(engine, "handle_error")
    def on_error(context: ExceptionContext) -> None:
        # The connection is whole, and its server of no use: another one must be found.
        if (
            isinstance(context.sqlalchemy_exception, DBAPIError)
            and error_code(context.sqlalchemy_exception) in UNUSABLE_SERVER_ERRORS
        ):
            context.is_disconnect = True

    check_idle_connections(engine)
    return engine


def _roll_back_open_transactions(engine: Engine) -> None:
    """Roll back a connection that is given back in the middle of a transaction, and spare all others the round trip."""

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        connection.info[IS_OPEN] = True

    @event.listens_for(engine, "commit")
    @event.listens_for(engine, "rollback")
    def on_end(connection: Connection) -> None:
        if not connection.invalidated:  # then it is gone, with its transaction
            connection.info[IS_OPEN] = False  # a commit that fails is followed by a rollback

    @event.listens_for(engine, "reset")
    def on_reset(connection: Any, record: Any, state: Any) -> None:
        if record is None or record.info.get(IS_OPEN, True):
            connection.rollback()


def _conversions(url: URL) -> dict[Any, Any]:
    """How the driver reads values: as it does, but times as moments in UTC, which is what our sessions speak."""
    if url.get_driver_name() == "mysqldb":
        from MySQLdb.constants import FIELD_TYPE  # noqa: PLC0415 - drivers are imported when they are used
        from MySQLdb.converters import conversions  # noqa: PLC0415
    else:
        from pymysql.constants import FIELD_TYPE  # noqa: PLC0415
        from pymysql.converters import conversions  # noqa: PLC0415
    return {**conversions, FIELD_TYPE.TIMESTAMP: parse_timestamp}


def _connect_with_failover(hosts: FailoverHosts, engine: Engine) -> None:
    """Let all connections of an engine go to one server of its address: the first that takes them."""
    connect = _connect_function(engine)

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
            raise DisconnectionError(f"its server is {record.info[HOST]}, and now we work with {hosts.current}")


def _connect_function(engine: Engine) -> Callable[..., Any]:
    if engine.driver != "pymysql":
        return engine.dialect.connect
    from peerd.store.connection.pymysql_tls import SharedTlsConnection  # noqa: PLC0415 - it needs the driver

    return SharedTlsConnection


def _postgresql(url: URL, options: Mapping[str, Any], *, generic_plans: bool = False) -> Engine:
    settings = {
        "timezone": "UTC",
        "lock_timeout": f"{SHORT_LOCK_TIMEOUT if _is_autocommit(options) else LOCK_TIMEOUT}s",
        "idle_in_transaction_session_timeout": f"{IDLE_TRANSACTION_TIMEOUT}s",
        **(GENERIC_PLAN_SETTINGS if generic_plans else {}),
    }
    arguments: dict[str, Any] = {
        "connect_timeout": CONNECT_TIMEOUT,
        "options": " ".join(f"-c {name}={value}" for name, value in settings.items()),
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 4,
        "tcp_user_timeout": RESPONSE_TIMEOUT * 1000,
    }
    if isinstance(url.query.get("host"), tuple) and "target_session_attrs" not in url.query:
        arguments["target_session_attrs"] = "read-write"  # a standby takes connections, and refuses every write
    engine = sa.create_engine(url, connect_args=arguments, **options)

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, record: Any) -> None:
        from peerd.store.connection.postgresql_timestamps import use_lenient_timestamps  # noqa: PLC0415 - it needs the driver

        use_lenient_timestamps(connection)

    check_idle_connections(engine)
    return engine


def _sqlite(url: URL, pool_size: int, *, check_constraints: bool = True) -> Engine:
    engine = sa.create_engine(
        url,
        connect_args={"timeout": BUSY_TIMEOUT, "check_same_thread": False},
        pool_size=(pool_size + 1) // 2,
        max_overflow=pool_size,
        poolclass=sa.QueuePool,
    )

    @event.listens_for(engine, "do_connect")
    def do_connect(dialect: Any, record: Any, arguments: list[Any], parameters: dict[str, Any]) -> None:
        create_private_file(url.database)

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself
        connection.text_factory = LENIENT_TEXT
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")  # accepted means accepted
        if not check_constraints:
            cursor.execute("PRAGMA ignore_check_constraints = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        # A writer that began as a reader and finds another writer fails at once, whatever its time-out.
        if connection.get_execution_options().get(READ_ONLY, False):
            connection.exec_driver_sql("BEGIN")
        else:
            AutocommitConnection(connection).exec_driver_sql("BEGIN IMMEDIATE", ())

    return engine


def create_private_file(file: str | None) -> None:
    """Make a file of SQLite, if it is not there, that nobody else may read; those beside it get its mode from SQLite.

    Bodies are private, and a lock on a file that can only be read stops the queue.

    A file that is there is not opened: to close it again would take away all locks that this process has on it, as
    POSIX has it, and with them what keeps another process from removing the log that our connections read.
    (https://www.sqlite.org/howtocorrupt.html, 2.2)
    """
    if file and file != ":memory:" and not file.startswith("file:"):
        with suppress(OSError):  # which SQLite words itself
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
