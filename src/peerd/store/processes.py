"""Processes of nodes: each start of a process has a row of its own, with its heartbeats and its end."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.outcome import truncate
from peerd.store.nodes import Node
from peerd.store.records import columns_of, insert_row, read_all
from peerd.store.schema.tables import processes, queues
from peerd.store.schema.types import now
from peerd.store.statements import insert_if_absent


class ProcessCapabilities(msgspec.Struct, frozen=True):
    """The queues and handlers that a process serves; empty where it runs no tasks.

    Attributes:
        handlers: from `peerd.store.known_handlers.encode_handlers`.
        slots: tasks that it runs at once.
    """

    queues: tuple[str, ...] = ()
    handlers: str | None = None
    slots: int | None = None


NO_CAPABILITIES = ProcessCapabilities()


class ProcessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table ``processes``. ``slots``: tasks that it runs at once; None where it runs none."""

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
    slots: int | None = None


def process_state(process: ProcessRecord, node: Node | None) -> str:
    """``alive``, ``ended``, or ``silent`` since its latest heartbeat, where its node is no more what it was started by.

    Args:
        process: its record.
        node: its node; None: it is forgotten.
    """
    if process.ended_at is not None:
        return "ended"
    return "alive" if node is not None and node.active and node.incarnation == process.incarnation else "silent"


PROCESS_HEARTBEAT: Final = (
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
    """Register a process; returns its id, the one of an earlier registration if its reply was lost.

    So a registration that the database carries out late, after the one that was sent in its place, changes nothing.
    Each queue that the process serves gets a row in ``queues``: one without a row was never served.
    """
    earlier = sa.select(processes.c.id).where(*_is_start(incarnation, slot, pid), processes.c.ended_at.is_(None))
    if (process_id := connection.execute(earlier.limit(1)).scalar()) is not None:
        return int(process_id)
    if capabilities.queues:
        rows = [{"name": name} for name in sorted(set(capabilities.queues))]
        insert_if_absent(connection, queues, rows, key=("name",))
    start = {"node_id": node_id, "incarnation": incarnation, "kind": kind, "slot": slot, "role": role, "pid": pid}
    serves = {"handlers": capabilities.handlers, "slots": capabilities.slots}
    return insert_row(connection, processes, {**start, **serves})


def heartbeat_process(connection: Connection, process_id: int) -> bool:
    """Write a heartbeat; False when the process's row is gone or says that it has ended."""
    return connection.execute(PROCESS_HEARTBEAT, {"process": process_id}).rowcount == 1


def end_process(connection: Connection, process_id: int, cause: str) -> None:
    """Record how a process ended; an earlier record is kept."""
    _end(connection, processes.c.id == process_id, cause=cause)


def end_unregistered_process(connection: Connection, incarnation: str, slot: str, pid: int, cause: str) -> None:
    """Record the end of a process that died in its boot, perhaps after its registration: its id was not reported."""
    _end(connection, *_is_start(incarnation, slot, pid), cause=cause)


def _is_start(incarnation: str, slot: str, pid: int) -> tuple[sa.ColumnElement[bool], ...]:
    """A row is of this start of a process."""
    return processes.c.incarnation == incarnation, processes.c.slot == slot, processes.c.pid == pid


def end_earlier_processes(connection: Connection, node_id: int, incarnation: str) -> None:
    """Record the end of the processes of a node's earlier incarnations."""
    earlier = processes.c.node_id == node_id, processes.c.incarnation != incarnation
    _end(connection, *earlier, cause="its node was started again")


def _end(connection: Connection, *conditions: sa.ColumnElement[bool], cause: str) -> None:
    statement = sa.update(processes).where(*conditions, processes.c.ended_at.is_(None))
    connection.execute(statement.values(ended_at=now(), cause=truncate(cause, 255)))


def list_processes(connection: Connection, *, ended: bool = False) -> list[ProcessRecord]:
    """The processes of all nodes; with ``ended``, also those that have ended."""
    wanted = sa.true() if ended else processes.c.ended_at.is_(None)
    found = sa.select(*columns_of(ProcessRecord, processes)).where(wanted)
    return read_all(connection, ProcessRecord, found.order_by(processes.c.node_id, processes.c.slot, processes.c.id))
