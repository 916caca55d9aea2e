"""Connections to PostgreSQL: the settings of sessions, also where a pooler (PgBouncer, Supavisor) stands before it.

Such a pooler refuses options at the start of a connection. In its transaction mode a client has a session of the server
for the time of a transaction: what a session was told or has prepared is not there in the next one. So where a pooler
is met, nothing is prepared, and each transaction begins with its settings.

A pooler is recognised by its process ids: it invents them, because a client's session changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine

from peerd.store.connection.pools import (
    CONNECT_TIMEOUT,
    IDLE_TRANSACTION_TIMEOUT,
    LOCK_TIMEOUT,
    RESPONSE_TIMEOUT,
    SHORT_LOCK_TIMEOUT,
    Engines,
    check_idle_connections,
    server_engine,
)
from peerd.store.statements import MAX_TIMESTAMP, MIN_TIMESTAMP

if TYPE_CHECKING:
    import psycopg
    from psycopg.abc import AdaptContext, Buffer
    from psycopg.pq import Format

GENERIC_PLAN_SETTINGS: Final = {"plan_cache_mode": "force_generic_plan"} | dict.fromkeys(
    ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin"), "off"
)
"""Settings of PostgreSQL for statements that are planned once. A plan made for an empty table would read it whole, or
all of an index, and stay so until the table is analyzed; a plan by an index, row by row, is right for every size."""
SETTINGS: Final = "peerd_settings_of_transactions"
"""In the ``info`` of a connection that a pooler serves: the statements with which a transaction begins."""
_SET_WITHOUT_POOLER: Final = (
    "SELECT count(set_config(name, value, false)) FROM unnest(%s::text[], %s::text[]) AS setting(name, value)"
    " WHERE pg_backend_pid() = %s"
)
MOST_TRIES: Final = 10
"""Questions after which a client counts as the only one of its session."""
MAX_CACHED: Final = 1000
"""Timestamps of one statement."""


def open_engines(url: URL, pool_size: int) -> Engines:
    """The engines for PostgreSQL. For the arguments see `Database`."""
    engine = partial(_engine, url, pool_size)
    planned_once = partial(engine, waits_for_locks=False, settings=GENERIC_PLAN_SETTINGS)
    undurable = GENERIC_PLAN_SETTINGS | {"synchronous_commit": "off"}
    return Engines(
        transactions=engine(autocommit=False),
        reads=engine(autocommit=True, waits_for_locks=False),
        short=planned_once(autocommit=True),
        groups=planned_once(autocommit=False),
        undurable_groups=planned_once(autocommit=False, settings=undurable),
    )


def _engine(
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
    engine = server_engine(url, pool_size, arguments, autocommit=autocommit)

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, record: Any) -> None:
        use_lenient_timestamps(connection)
        _set_up(connection, record.info, session_settings)

    check_idle_connections(engine)
    return engine


def _set_up(connection: psycopg.Connection[Any], info: dict[Any, Any], settings: Mapping[str, str]) -> None:
    """Give a new session its settings, or note them in ``info`` for its transactions where a pooler serves it."""
    prepare_threshold, connection.prepare_threshold = connection.prepare_threshold, None
    if _ask(connection, _SET_WITHOUT_POOLER, [*settings], [*settings.values()], connection.info.backend_pid):
        connection.prepare_threshold = prepare_threshold
    else:
        info[SETTINGS] = "; ".join(f"SET LOCAL {name} = '{value}'" for name, value in settings.items())


def has_pooler(info: Mapping[Any, Any]) -> bool:
    """Whether a pooler serves a connection, by its ``info``: then statements that commit by themselves are in one
    transaction.
    """
    return SETTINGS in info


@contextmanager
def transaction_with_settings(connection: Connection) -> Iterator[None]:
    """Let statements that commit by themselves be one transaction, with its settings, where a pooler serves them."""
    connection.exec_driver_sql(f"BEGIN; {connection.info[SETTINGS]}")
    try:
        yield
    except BaseException:
        if not connection.invalidated:
            connection.exec_driver_sql("ROLLBACK")
        raise
    connection.exec_driver_sql("COMMIT")


def shares_session(connection: psycopg.Connection[Any], other: psycopg.Connection[Any]) -> bool:
    """Whether a pooler gives the session of a connection to others between its transactions.

    Args:
        connection: in no transaction, as the other one.
        other: of the same database, opened after it.
    """
    pid = _session(connection)
    return any(_session(other) == pid or _session(connection) != pid for _ in range(MOST_TRIES))


def _session(connection: psycopg.Connection[Any]) -> int:
    return _ask(connection, "SELECT pg_backend_pid()")


def _ask(connection: psycopg.Connection[Any], question: str, *values: object) -> int:
    """The number that is the answer; in no transaction."""
    autocommit, connection.autocommit = connection.autocommit, True
    row = connection.execute(question.encode(), values or None).fetchone()
    connection.autocommit = autocommit
    assert row is not None
    return int(row[0])


# ---------------------------------------------------------------- timestamps


class LenientTimestampLoader:
    """psycopg's loader, with `MIN_TIMESTAMP` or `MAX_TIMESTAMP` for what Python's datetime cannot hold.

    SQL can write infinity, years BC and after 9999; psycopg refuses to read them, and with them every row of the same
    result. It creates a loader for each statement; the rows of a statement often share their timestamps.
    """

    format: Format

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        import psycopg  # noqa: PLC0415 - drivers are imported when they are used

        default = psycopg.adapters.get_loader(oid, self.format)
        assert default is not None
        self._default = default(oid, context)
        self._error = psycopg.DataError
        self._cache: dict[bytes, datetime] = {}

    def load(self, data: Buffer) -> datetime:
        """The timestamp, in UTC."""
        text = bytes(data)
        moment = self._cache.get(text)
        if moment is None:
            if len(self._cache) == MAX_CACHED:
                self._cache.clear()
            try:
                moment = self._default.load(text).astimezone(UTC)
            except self._error:
                moment = MIN_TIMESTAMP if text.startswith(b"-") or text.endswith(b"BC") else MAX_TIMESTAMP
            self._cache[text] = moment
        return moment


def use_lenient_timestamps(connection: psycopg.Connection[Any]) -> None:
    """Let a connection read every timestamp."""
    from psycopg.pq import Format  # noqa: PLC0415 - drivers are imported when they are used

    LenientTimestampLoader.format = Format.TEXT
    connection.adapters.register_loader("timestamptz", LenientTimestampLoader)
