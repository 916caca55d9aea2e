"""How much the nodes run: their working tasks and their slots. Reads as many rows as there are slots."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.nodes.known_handlers import decode_handlers
from peerd.store.nodes.nodes import list_nodes
from peerd.store.schema.tables import nodes, processes, tasks
from peerd.store.tasks.conditions import PENDING_WITHOUT_KEY, by_index, is_working


class NodeLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What a node runs at this moment.

    Attributes:
        name: of the node.
        running: tasks that its processes hold.
        slots: tasks that they run at once; tasks that are claimed ahead make `running` greater for a moment.
    """

    name: str
    running: int
    slots: int


def read_loads(connection: Connection, queues: Collection[str] | None = None) -> list[NodeLoad]:
    """The load of each node, by name; with ``queues`` only tasks of these are counted."""
    running, slots = count_running(connection, queues), count_slots(connection)
    return [
        NodeLoad(name=node.name, running=running.get(node.id, 0), slots=slots.get(node.id, 0))
        for node in list_nodes(connection)
    ]


def count_running(connection: Connection, queues: Collection[str] | None = None) -> dict[int, int]:
    """The working tasks of each node, by its id."""
    conditions = [is_working(), tasks.c.worker_node_id.is_not(None)]
    if queues is not None:
        conditions.append(tasks.c.queue.in_(sorted(queues)))
    grouped = sa.select(tasks.c.worker_node_id, sa.func.count()).where(*conditions).group_by(tasks.c.worker_node_id)
    rows = connection.execute(by_index(grouped, PENDING_WITHOUT_KEY.index))
    return {node_id: int(count) for node_id, count in rows}


def count_slots(connection: Connection) -> dict[int, int]:
    """The slots of the living processes of each node, by its id."""
    living = (processes.c.ended_at.is_(None), processes.c.slots.is_not(None))
    statement = sa.select(processes.c.node_id, sa.func.sum(processes.c.slots)).where(*living)
    return {node_id: int(slots) for node_id, slots in connection.execute(statement.group_by(processes.c.node_id))}


def read_serving_loads(connection: Connection, queue: str) -> list[NodeLoad]:
    """The load of the processes that serve a queue, of each node that is active and claims tasks, by its name."""
    held = sa.select(tasks.c.process_id, sa.func.count().label("count")).where(is_working())
    held_by = by_index(held.group_by(tasks.c.process_id), PENDING_WITHOUT_KEY.index).subquery()
    columns = (
        nodes.c.name,
        sa.func.max(processes.c.handlers),
        sa.func.sum(processes.c.slots),
        sa.func.sum(sa.func.coalesce(held_by.c.count, 0)),
    )
    of_process = processes.join(nodes, processes.c.node_id == nodes.c.id)
    statement = (
        sa.select(*columns)
        .select_from(of_process.join(held_by, held_by.c.process_id == processes.c.id, isouter=True))
        .where(processes.c.ended_at.is_(None), processes.c.slots.is_not(None), processes.c.handlers.is_not(None))
        .where(nodes.c.active, sa.not_(nodes.c.draining))
        .group_by(nodes.c.name, processes.c.kind)
    )
    found: dict[str, NodeLoad] = {}
    for name, handlers, slots, running in connection.execute(statement):
        if queue in decode_handlers(handlers):
            other = found.get(name, NodeLoad(name=name, running=0, slots=0))
            found[name] = NodeLoad(name=name, running=other.running + int(running), slots=other.slots + int(slots))
    return [found[name] for name in sorted(found)]
