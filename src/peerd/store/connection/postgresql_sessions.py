"""The settings of PostgreSQL's sessions, also where a pooler (PgBouncer, Supavisor) stands before the server.

Such a pooler refuses options at the start of a connection. In its transaction mode a client has a session of the server
for the time of a transaction: what a session was told or has prepared is not there in the next one. So where a pooler
is met, nothing is prepared, and each transaction begins with its settings.

A pooler is recognised by its process ids: it invents them, because a client's session changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.engine import Connection

if TYPE_CHECKING:
    import psycopg

SETTINGS: Final = "peerd_settings_of_transactions"
"""In the ``info`` of a connection that a pooler serves: the statements with which a transaction begins."""
_SET_WITHOUT_POOLER: Final = (
    "SELECT count(set_config(name, value, false)) FROM unnest(%s::text[], %s::text[]) AS setting(name, value)"
    " WHERE pg_backend_pid() = %s"
)
MOST_TRIES: Final = 10
"""Questions after which a client counts as the only one of its session."""


def set_up(connection: psycopg.Connection[Any], info: dict[Any, Any], settings: Mapping[str, str]) -> None:
    """Give a new session its settings, or note them in ``info`` for its transactions where a pooler serves it."""
    prepare_threshold, connection.prepare_threshold = connection.prepare_threshold, None
    if _ask(connection, _SET_WITHOUT_POOLER, [*settings], [*settings.values()], connection.info.backend_pid):
        connection.prepare_threshold = prepare_threshold
    else:
        info[SETTINGS] = "; ".join(f"SET LOCAL {name} = '{value}'" for name, value in settings.items())


def begin_with_settings(connection: Connection) -> None:
    """Make the settings, at the begin of a transaction; without a pooler the session has them."""
    if settings := connection.info.get(SETTINGS):
        connection.exec_driver_sql(settings)


def has_pooler(info: Mapping[Any, Any]) -> bool:
    """Whether a pooler serves a connection, by its ``info``: then statements that commit by themselves are in one
    transaction.
    """
    return SETTINGS in info


@contextmanager
def with_settings(connection: Connection) -> Iterator[None]:
    """Let statements that commit by themselves have their settings: behind a pooler they are one transaction."""
    if not has_pooler(connection.info):
        yield
        return
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
