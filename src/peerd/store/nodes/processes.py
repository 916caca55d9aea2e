"""Processes: an identity that is new at each start, for the tasks that each holds."""

from __future__ import annotations

from datetime import datetime

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.outcome import truncate
from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import processes, queues
from peerd.store.tasks.rows import insert_if_absent


class ProcessCapabilities(msgspec.Struct, frozen=True):
    """What tasks a process takes; nothing where it takes none."""

    queues: tuple[str, ...] = ()
    handlers: str | None = None
    """What it can run, from `peerd.store.nodes.known_handlers.encode_handlers`."""


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


PROCESS_COLUMNS = tuple(processes.c[field] for field in ProcessRecord.__struct_fields__)
HEARTBEAT = (
    sa.update(processes)
    .where(processes.c.id == sa.bindparam("process"), processes.c.ended_at.is_(None))
    .values(checked_at=now())
)
"""Made once: it is run every few seconds by every process."""


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
    """Begin a process; its identity. Where it has begun already and was not answered, that record ends.

    Each queue that it serves has a row in ``queues`` from now on: what has none was never served.
    """
    end_unregistered_process(connection, incarnation, slot, pid, "it began again: it had got no answer")
    values: dict[str, object] = {
        "node_id": node_id,
        "incarnation": incarnation,
        "kind": kind,
        "slot": slot,
        "role": role,
        "pid": pid,
        "handlers": capabilities.handlers,
    }
    if capabilities.queues:
        insert_if_absent(
            connection, queues, [{"name": name} for name in sorted(set(capabilities.queues))], key=("name",)
        )
    key = connection.execute(sa.insert(processes).values(values)).inserted_primary_key
    assert key is not None
    return int(key[0])


def heartbeat_process(connection: Connection, process_id: int) -> bool:
    """Say that a process goes on; False when its record is gone or it was declared dead."""
    return connection.execute(HEARTBEAT, {"process": process_id}).rowcount == 1


def end_process(connection: Connection, process_id: int, cause: str) -> None:
    """Record how a process ended; the first record stays."""
    alive = sa.update(processes).where(processes.c.id == process_id, processes.c.ended_at.is_(None))
    connection.execute(alive.values(ended_at=now(), cause=truncate(cause, 255)))


def end_unregistered_process(connection: Connection, incarnation: str, slot: str, pid: int, cause: str) -> None:
    """Record the end of a process that died in its boot, perhaps after it had registered: it told nobody as whom."""
    its = sa.and_(processes.c.incarnation == incarnation, processes.c.slot == slot, processes.c.pid == pid)
    statement = sa.update(processes).where(its, processes.c.ended_at.is_(None))
    connection.execute(statement.values(ended_at=now(), cause=truncate(cause, 255)))


def end_earlier_processes(connection: Connection, node_id: int, incarnation: str) -> None:
    """Record the end of processes of a node's earlier lives."""
    earlier = sa.update(processes).where(
        processes.c.node_id == node_id, processes.c.incarnation != incarnation, processes.c.ended_at.is_(None)
    )
    connection.execute(earlier.values(ended_at=now(), cause="its node was started anew"))


def list_processes(connection: Connection, *, ended: bool = False) -> list[ProcessRecord]:
    """The processes of all nodes, the living ones or all that are on record."""
    statement = sa.select(*PROCESS_COLUMNS).order_by(processes.c.node_id, processes.c.slot, processes.c.id)
    if not ended:
        statement = statement.where(processes.c.ended_at.is_(None))
    return [ProcessRecord(**row) for row in connection.execute(statement).mappings()]
