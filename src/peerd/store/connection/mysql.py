"""Connections to MariaDB, MySQL and Galera clusters: sessions, fail-over between servers, TLS.

All connections of a process go to one server of a URL that names several, so that each reads what another has
committed; pools that fail over on their own, as SQLAlchemy's would, do not give that. On PostgreSQL libpq does this;
MySQL's drivers know one host only.

The servers of a Galera cluster apply one another's commits within milliseconds, but not at the same moment. Writes are
right without a wait, because a commit is certified against all others: of two servers that write the same row, one
fails as at a deadlock. A *read* may lack a row of another server, though. So a server is waited for when a connection
is opened, and before the few operations that begin with `wait_for_sync`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine, ExceptionContext
from sqlalchemy.exc import DBAPIError, DisconnectionError

from peerd.config.address import hosts_of
from peerd.store.connection.database_errors import error_code
from peerd.store.connection.pools import (
    CONNECT_TIMEOUT,
    IDLE_TRANSACTION_TIMEOUT,
    RESPONSE_TIMEOUT,
    SHORT_LOCK_TIMEOUT,
    Engines,
    check_idle_connections,
    server_engine,
)
from peerd.store.schema.types import MYSQL, is_mariadb
from peerd.store.statements import parse_timestamp

T = TypeVar("T")
Host = tuple[str | None, int | None]
"""Name and port; None is the driver's default."""

RETRY_FAILED_HOST_AFTER: Final = 30.0
"""Seconds in which a server that failed is tried last."""
NOT_READY: Final = 1047
UNUSABLE_SERVER_ERRORS: Final = frozenset({NOT_READY, 1290, 1836})
"""Errors of servers that answer and cannot be used: not ready, or left read-only by a fail-over."""
SYNC_WAIT: Final = "SET STATEMENT wsrep_sync_wait = 1 FOR SELECT 1"
IS_MEMBER: Final = "peerd_galera"
"""In a connection's ``info``: whether its server belongs to a Galera cluster."""
HOST: Final = "peerd_host"
"""In a connection's ``info``: its server."""
IS_OPEN: Final = "peerd_is_open"
"""In a connection's ``info``: whether a transaction has begun and not ended."""


def open_engines(url: URL, pool_size: int, *, response_timeout: int | None = None) -> Engines:
    """The engines for MariaDB or MySQL; they share the server in use. For the arguments see `Database`."""
    engine = partial(_engine, url, FailoverHosts(hosts_of(url)), pool_size, response_timeout or RESPONSE_TIMEOUT)
    short, groups = engine(autocommit=True), engine(autocommit=False, waits_for_locks=False)
    return Engines(engine(autocommit=False), reads=short, short=short, groups=groups, undurable_groups=groups)


def _engine(
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
    engine = server_engine(one_host, pool_size, arguments, autocommit=autocommit, pool_reset_on_return=None)
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


# ---------------------------------------------------------------- several servers


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
                record.info[IS_MEMBER] = _check_ready(dialect.dbapi, connection)
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


class FailoverHosts:
    """The servers of one URL, and the one that this process uses. Thread-safe.

    When the server accepts no connection, the next one is used, and connections to the former one are discarded at
    their checkout. A server that failed is tried last for a while; then the process returns to the first that accepts
    it.

    Args:
        hosts: in order of preference.
        clock: a monotonic clock, in seconds.

    >>> moment = 0.0
    >>> hosts = FailoverHosts([("db1", None), ("db2", None)], lambda: moment)
    >>> def refuse_at_db1(host):
    ...     if host == ("db1", None):
    ...         raise ConnectionRefusedError
    ...     return f"connected to {host[0]}"
    >>> hosts.connect(refuse_at_db1, ConnectionRefusedError)
    'connected to db2'
    >>> hosts.current, hosts.connect_order()
    (('db2', None), [('db2', None), ('db1', None)])
    >>> moment = 31.0
    >>> hosts.connect_order()
    [('db1', None), ('db2', None)]
    """

    def __init__(self, hosts: Sequence[Host], clock: Callable[[], float] = time.monotonic) -> None:
        self._hosts = list(hosts)
        self._clock = clock
        self._failed_at: dict[Host, float] = {}
        self.current = self._hosts[0]
        """The server in use."""

    def connect_order(self) -> list[Host]:
        """The servers, in the order in which they are tried now."""
        recent = self._clock() - RETRY_FAILED_HOST_AFTER
        failed = {host: moment for host, moment in self._failed_at.copy().items() if moment > recent}
        return sorted(self._hosts, key=lambda host: failed.get(host, -1.0))

    def connect(self, connect_to: Callable[[Host], T], failure: type[Exception]) -> T:
        """Connect to the first server that accepts; if all raise ``failure``, the error of the first is raised."""
        first_error: Exception | None = None
        for host in self.connect_order():
            began = self._clock()
            try:
                connection = connect_to(host)
            except failure as error:
                self._failed_at[host] = self._clock()
                first_error = first_error or error
            else:
                if self._failed_at.get(host, began) <= began:  # no other thread has met its failure meanwhile
                    self._failed_at.pop(host, None)
                    self.current = host
                return connection
        assert first_error is not None
        try:
            raise first_error
        finally:
            del first_error  # its traceback refers to this frame


# ---------------------------------------------------------------- Galera


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


def _check_ready(dbapi: Any, connection: Any) -> bool:
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


# ---------------------------------------------------------------- caller session


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
