"""The examinations of the database server: its settings, and what slows it. `doctor` adds the state of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Final

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from peerd.operate.diagnostics import mysql, postgresql, sqlite
from peerd.operate.diagnostics.finding import Finding, Level

__all__ = ["Finding", "Level", "examine_database", "examine_slowdowns"]

Examination = Callable[[Connection], list[Finding]]
DATABASES: Final[dict[str, ModuleType]] = {
    "mysql": mysql,
    "mariadb": mysql,
    "postgresql": postgresql,
    "sqlite": sqlite,
}
"""The module of each dialect: its EXAMINATIONS, and those of them whose findings may begin to slow every claim."""


def examine_database(connection: Connection) -> list[Finding]:
    """All findings of the database server."""
    return _run_examinations(connection, DATABASES[connection.dialect.name].EXAMINATIONS)


def examine_slowdowns(connection: Connection) -> list[Finding]:
    """Findings, worth a warning at least, of what slows every claim now."""
    found = _run_examinations(connection, DATABASES[connection.dialect.name].SLOWDOWN_EXAMINATIONS)
    return [finding for finding in found if finding.level in (Level.WARNING, Level.PROBLEM)]


def _run_examinations(connection: Connection, examinations: Iterable[Examination]) -> list[Finding]:
    """Run examinations; a missing privilege is a finding too.

    A connection that only reads commits each statement, so one that fails leaves nothing behind.
    """
    findings: list[Finding] = []
    for examination in examinations:
        try:
            findings += examination(connection)
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            subject = (examination.__doc__ or examination.__name__).splitlines()[0].rstrip(".")
            reason = str(error.orig.args[-1] if error.orig is not None and error.orig.args else error).splitlines()[0]
            message = f"could not be examined: {reason}"
            findings.append(Finding(Level.NOTE, subject, message, "grant PROCESS to see it"))
    return findings
