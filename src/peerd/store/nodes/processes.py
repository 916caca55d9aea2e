"""Processes: a row for each start of a process, by which its tasks are held, and its heartbeats."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.outcome import truncate
from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import processes, queues
from peerd.store.tasks.rows import insert_if_absent


class ProcessCapabilities(msgspec.Struct, frozen=True):
    """The queues and handlers that a process serves; empty where it runs no tasks."""

    queues: tuple[str, ...] = ()
    handlers: str | None = None
    """From `peerd.store.nodes.known_handlers.encode_handlers`."""


NO_CAPABILITIES = ProcessCapabilities()


class ProcessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table ``processes``."""

    id: int
    node_id: int
    incarnation: str
    kind: str
    slot: str
    role: str
    pid: int
    started_at: datetime
    checked_at: datetime
    ended_at: datetime | None
    cause: str | None


PROCESS_COLUMNS: Final = tuple(processes.c[field] for field in ProcessRecord.__struct_fields__)
HEARTBEAT: Final = (
    sa.update(processes)
    .where(processes.c.id == sa.bindparam("process"), processes.c.ended_at.is_(None))
    .values(checked_at=now())
)
"""Built once: every process runs it every few seconds."""


def register_process(
    connection: Connection,
    *,
    node_id: int,
    incarnation: str,
    kind: str,
    slot: str,
    role: str,
    pid: int,
    capabilities: ProcessCapabilities = NO_CAPABILITIES,
) -> int:
    """Register a process; returns its id. An earlier registration whose reply was lost is ended.

    Each queue that it serves gets a row in ``queues``: one without a row was never served.
    """
    end_unregistered_process(connection, incarnation, slot, pid, "it registered again: the first reply was lost")
    if capabilities.queues:
        rows = [{"name": name} for name in sorted(set(capabilities.queues))]
        insert_if_absent(connection, queues, rows, key=("name",))
    insert = sa.insert(processes).values(
        node_id=node_id,
        incarnation=incarnation,
        kind=kind,
        slot=slot,
        role=role,
        pid=pid,
        handlers=capabilities.handlers,
    )
    key = connection.execute(insert).inserted_primary_key
    assert key is not None
    return int(key[0])


def heartbeat_process(connection: Connection, process_id: int) -> bool:
    """Write a heartbeat; False when the process's row is gone or says that it has ended."""
    return connection.execute(HEARTBEAT, {"process": process_id}).rowcount == 1


def end_process(connection: Connection, process_id: int, cause: str) -> None:
    """Record how a process ended; an earlier record is kept."""
    _end(connection, processes.c.id == process_id, cause=cause)


def end_unregistered_process(connection: Connection, incarnation: str, slot: str, pid: int, cause: str) -> None:
    """Record the end of a process that died in its boot, perhaps after its registration: its id was not reported."""
    own = processes.c.incarnation == incarnation, processes.c.slot == slot, processes.c.pid == pid
    _end(connection, *own, cause=cause)


def end_earlier_processes(connection: Connection, node_id: int, incarnation: str) -> None:
    """Record the end of the processes of a node's earlier incarnations."""
    earlier = processes.c.node_id == node_id, processes.c.incarnation != incarnation
    _end(connection, *earlier, cause="its node was started again")


def _end(connection: Connection, *conditions: sa.ColumnElement[bool], cause: str) -> None:
    statement = sa.update(processes).where(*conditions, processes.c.ended_at.is_(None))
    connection.execute(statement.values(ended_at=now(), cause=truncate(cause, 255)))


def list_processes(connection: Connection, *, ended: bool = False) -> list[ProcessRecord]:
    """The processes of all nodes; with ``ended``, also those that have ended."""
    statement = sa.select(*PROCESS_COLUMNS).order_by(processes.c.node_id, processes.c.slot, processes.c.id)
    if not ended:
        statement = statement.where(processes.c.ended_at.is_(None))
    return [ProcessRecord(**row) for row in connection.execute(statement).mappings()]
