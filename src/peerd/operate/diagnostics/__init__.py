"""What a doctor looks at: the database server's settings, what slows it, and what waits for a person."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from peerd.operate.diagnostics import cluster, galera, mysql, postgresql, sqlite
from peerd.operate.diagnostics.finding import Finding, Level

__all__ = ["Finding", "Level", "examine", "examine_slowdowns"]

Examination = Callable[[Connection], list[Finding]]

DATABASE_EXAMINATIONS: Final[dict[str, Sequence[Examination]]] = {
    "mysql": (*mysql.EXAMINATIONS, *galera.EXAMINATIONS),
    "mariadb": (*mysql.EXAMINATIONS, *galera.EXAMINATIONS),
    "postgresql": postgresql.EXAMINATIONS,
    "sqlite": sqlite.EXAMINATIONS,
}


def examine(connection: Connection, max_update: float) -> list[Finding]:
    """All findings, of the database and of the cluster.

    Args:
        connection: in a transaction that only reads.
        max_update: seconds without a touch after which a running task is frozen.
    """
    examinations = [*DATABASE_EXAMINATIONS[connection.dialect.name], *cluster.examinations(max_update)]
    return [finding for examination in examinations for finding in _run_examination(connection, examination)]


SLOWDOWN_EXAMINATIONS: Final[dict[str, Sequence[Examination]]] = {
    "mysql": (mysql.history, mysql.transactions, galera.flow_control),
    "mariadb": (mysql.history, mysql.transactions, galera.flow_control),
    "postgresql": (postgresql.vacuum, postgresql.transactions, postgresql.prepared),
    "sqlite": (),
}
"""What may begin to slow every claim at any time."""


def examine_slowdowns(connection: Connection) -> list[Finding]:
    """Findings, worth a warning at least, of what slows every claim now."""
    examinations = SLOWDOWN_EXAMINATIONS[connection.dialect.name]
    found = [finding for examination in examinations for finding in _run_examination(connection, examination)]
    return [finding for finding in found if finding.level in (Level.WARNING, Level.PROBLEM)]


def _run_examination(connection: Connection, examination: Examination) -> list[Finding]:
    """What an examination finds; that this user may not look is a finding too.

    A connection that only reads commits each statement, so one that fails leaves nothing behind.
    """
    try:
        return examination(connection)
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        subject = (examination.__doc__ or examination.__name__).splitlines()[0].rstrip(".")
        return [Finding(Level.NOTE, subject, f"could not be examined: {_reason(error)}", "grant PROCESS to see it")]


def _reason(error: DBAPIError) -> str:
    original = error.orig
    words = original.args[-1] if original is not None and original.args else error
    return str(words).splitlines()[0]
