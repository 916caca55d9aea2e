"""What stands in the database at the end of a run, as plain values: what the checker judges."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.connection.database import Database
from peerd.store.schema.tables import attempts, nodes, processes, tasks
from tests.faults.audit import audit, kept_attempts
from tests.faults.jobs import LEDGER

S = TypeVar("S", bound=msgspec.Struct)


class FinalTask(msgspec.Struct, kw_only=True):
    """A task."""

    id: int
    name: str
    status: str
    body: str | None = None
    lease: int = 0
    attempts: int = 0
    max_attempts: int | None = None
    crashes: int = 0
    process_id: int | None = None
    result: str | None = None


class FinalAttempt(msgspec.Struct, kw_only=True):
    """An attempt that did not succeed; also of a task that is gone."""

    task_id: int
    lease: int
    outcome: str
    number: int = 0
    process_id: int | None = None
    error: str | None = None
    cause: str | None = None


class AuditEntry(msgspec.Struct, kw_only=True):
    """A change of a task, as the database's triggers wrote it down; see `tests.faults.audit`."""

    seq: int
    at: float
    what: str
    task_id: int
    old_status: str | None = None
    new_status: str | None = None
    old_lease: int | None = None
    new_lease: int | None = None
    old_attempts: int | None = None
    new_attempts: int | None = None
    process_id: int | None = None
    worker_node_id: int | None = None
    crashes: int = 0
    node_id: int | None = None
    start_at: float | None = None
    finish_at: float | None = None
    checked_at: float | None = None
    details: str | None = None


class FinalProcess(msgspec.Struct, kw_only=True):
    """A process of a node; times are seconds since 1970."""

    id: int
    node_id: int
    pid: int
    started_at: float = 0.0
    ended_at: float | None = None
    cause: str | None = None


class FinalTables(msgspec.Struct, kw_only=True):
    """All of it."""

    rows: list[FinalTask]
    attempts: list[FinalAttempt]
    changes: list[AuditEntry]
    processes: list[FinalProcess]
    nodes: dict[int, str]
    ledger: list[tuple[int, str]]


def read(url: str) -> FinalTables:
    """All that is in the tables of a database, read at one moment after the last write."""
    database = Database(url)
    try:
        return database.read(_read)
    finally:
        database.close()


def _read(connection: Connection) -> FinalTables:
    rows = _all(connection, tasks, FinalTask)
    ids = {row.id for row in rows}
    of_the_gone = [one for one in _all(connection, kept_attempts, FinalAttempt) if one.task_id not in ids]
    return FinalTables(
        rows=rows,
        attempts=_all(connection, attempts, FinalAttempt) + of_the_gone,
        changes=sorted(_all(connection, audit, AuditEntry), key=lambda change: change.seq),
        processes=_all(connection, processes, FinalProcess),
        nodes={row.id: row.name for row in connection.execute(sa.select(nodes.c.id, nodes.c.name))},
        ledger=[(row.task, row.child_key) for row in connection.execute(sa.select(LEDGER))],
    )


def _all(connection: Connection, table: sa.Table, kind: type[S]) -> list[S]:
    names = kind.__struct_fields__
    rows = connection.execute(sa.select(*[table.c[name] for name in names]))
    return [kind(**{name: _plain(value) for name, value in zip(names, row, strict=True)}) for row in rows]


def _plain(value: Any) -> Any:
    return value.timestamp() if hasattr(value, "timestamp") else value


def key_of(body: str | None) -> str:
    """The key in a task's body; empty where there is none."""
    found = json.loads(body or "{}")
    return str(found.get("key", "")) if isinstance(found, dict) else ""
