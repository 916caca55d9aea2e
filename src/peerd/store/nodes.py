"""Nodes: registration, heartbeats, ends, which of them are alive, and how much they run.

A node has a name, an id and incarnations.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from datetime import datetime
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from peerd.domain.errors import NodeHasPinnedTasks, NodeNotFound, NodeReplaced, NodeStillAlive
from peerd.domain.lifecycle import FINISHED
from peerd.store.known_handlers import decode_handlers
from peerd.store.records import columns_of, read_all, read_first
from peerd.store.schema.migrate import NODE_ALIVE_WITHIN, newest
from peerd.store.schema.tables import nodes, processes, tasks
from peerd.store.schema.types import now, seconds_from_now
from peerd.store.tasks.conditions import PENDING_WITHOUT_KEY, by_index, is_working

HEARTBEAT: Final = (
    sa.update(nodes)
    .where(nodes.c.name == sa.bindparam("of_name"), nodes.c.incarnation == sa.bindparam("of_incarnation"))
    .values(checked_at=now(), active=True)
)
"""Built once: every node runs them every few seconds."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table ``nodes``. ``revision``: the newest revision of the tables that its code knows."""

    id: int
    name: str
    incarnation: str | None
    address: str | None
    zone: str | None
    version: str | None
    revision: str | None
    active: bool
    draining: bool
    started_at: datetime | None
    checked_at: datetime | None

    @property
    def state(self) -> str:
        """active, draining, silent (its heartbeats ended without a stop) or stopped."""
        if self.incarnation is None:
            return "stopped"
        if not self.active:
            return "silent"
        return "draining" if self.draining else "active"


_SELECT: Final = sa.select(*columns_of(Node, nodes))
BY_NAME: Final = _SELECT.where(nodes.c.name == sa.bindparam("of_name"))


def new_incarnation() -> str:
    """A name for a new incarnation of a node."""
    return uuid.uuid4().hex


def find_node(connection: Connection, name: str) -> Node | None:
    """The node of this name, if one has ever registered."""
    return read_first(connection, Node, BY_NAME, {"of_name": name})


def list_nodes(connection: Connection) -> list[Node]:
    """All nodes that have ever registered, by name."""
    return read_all(connection, Node, _SELECT.order_by(nodes.c.name))


def get_node(connection: Connection, name: str) -> Node:
    """The node of this name.

    Raises:
        NodeNotFound: no node has ever registered under it.
    """
    found = find_node(connection, name)
    if found is None:
        raise NodeNotFound(name, [node.name for node in list_nodes(connection)])
    return found


def get_node_id(connection: Connection, name: str) -> int:
    """The id of a node's name.

    Raises:
        NodeNotFound: no node has ever registered under it.
    """
    return get_node(connection, name).id


def is_node_alive(connection: Connection, name: str, silence: float) -> bool:
    """Whether a running incarnation of this node has written a heartbeat in the last ``silence`` seconds."""
    fresh = sa.select(nodes.c.id).where(
        nodes.c.name == name,
        nodes.c.incarnation.is_not(None),
        nodes.c.active,
        nodes.c.checked_at > seconds_from_now(-silence),
    )
    return connection.execute(fresh).first() is not None


def register_incarnation(
    connection: Connection,
    name: str,
    incarnation: str,
    *,
    replaces: str | None,
    address: str | None = None,
    zone: str | None = None,
    version: str | None = None,
) -> int | None:
    """Begin an incarnation of a node in place of ``replaces``, which the caller has read (None: there was none).

    Returns:
        the node's id; None when another incarnation has begun meanwhile.
    """
    itself = {"address": address, "zone": zone, "version": version, "revision": newest()}
    values = {"incarnation": incarnation, "active": True, "started_at": now(), "checked_at": now(), **itself}
    as_read = nodes.c.incarnation.is_(None) if replaces is None else nodes.c.incarnation == replaces
    if not connection.execute(sa.update(nodes).where(nodes.c.name == name, as_read).values(values)).rowcount:
        if find_node(connection, name) is not None:
            return None
        try:
            with connection.begin_nested():
                connection.execute(sa.insert(nodes).values(name=name, **values))
        except IntegrityError:
            return None
    return get_node_id(connection, name)


def heartbeat(connection: Connection, name: str, incarnation: str) -> Node:
    """Write a heartbeat of an incarnation, and return the node's row: it may have been set to draining.

    Raises:
        NodeReplaced: another incarnation has begun under its name.
    """
    heartbeat_only(connection, name, incarnation)
    found = find_node(connection, name)
    assert found is not None
    return found


def heartbeat_only(connection: Connection, name: str, incarnation: str) -> None:
    """Write a heartbeat of an incarnation.

    Raises:
        NodeReplaced: another incarnation has begun under its name.
    """
    if not connection.execute(HEARTBEAT, {"of_name": name, "of_incarnation": incarnation}).rowcount:
        raise NodeReplaced(name)


def deregister_node(connection: Connection, name: str, incarnation: str) -> None:
    """End an incarnation after an orderly stop: its name is free at once."""
    own = sa.update(nodes).where(nodes.c.name == name, nodes.c.incarnation == incarnation)
    connection.execute(own.values(incarnation=None, active=False, checked_at=now()))


def mark_node_silent(connection: Connection, name: str, incarnation: str) -> None:
    """End an incarnation after a failure: the node counts as silent at once, and its name is free."""
    own = sa.update(nodes).where(nodes.c.name == name, nodes.c.incarnation == incarnation)
    connection.execute(own.values(active=False, checked_at=now()))


def deactivate_silent(connection: Connection, silence: float) -> list[str]:
    """Mark nodes without a heartbeat for ``silence`` seconds as inactive; their names.

    Rows that another session has locked are skipped: the lock may be what holds up the heartbeat.
    """
    silent = sa.and_(nodes.c.active, nodes.c.checked_at < seconds_from_now(-silence))
    found = sa.select(nodes.c.id, nodes.c.name).where(silent).order_by(nodes.c.id)
    gone = []
    for node_id, name in connection.execute(found.with_for_update(skip_locked=True)).all():
        if connection.execute(sa.update(nodes).where(nodes.c.id == node_id, silent).values(active=False)).rowcount:
            gone.append(name)
    return gone


def set_draining(connection: Connection, name: str, *, draining: bool) -> None:
    """Let a node take no new tasks, or take them again.

    Raises:
        NodeNotFound: no node has ever registered under this name.
    """
    node_id = get_node_id(connection, name)
    connection.execute(sa.update(nodes).where(nodes.c.id == node_id).values(draining=draining))


def delete_node(connection: Connection, name: str) -> None:
    """Delete the row of a node that is gone. If it still runs, it stops at its next heartbeat, as when replaced.

    Raises:
        NodeNotFound: no node has ever registered under this name.
        NodeStillAlive: its last heartbeat is younger than `NODE_ALIVE_WITHIN`, and it has not been stopped.
        NodeHasPinnedTasks: unfinished tasks are pinned to it.
    """
    node_id = get_node_id(connection, name)
    if is_node_alive(connection, name, NODE_ALIVE_WITHIN):
        raise NodeStillAlive(name)
    pinned = sa.select(sa.func.count()).select_from(tasks).where(_is_pinned_to(node_id))
    if count := connection.execute(pinned).scalar_one():
        raise NodeHasPinnedTasks(name, count)
    connection.execute(sa.delete(nodes).where(nodes.c.id == node_id))


def purge_nodes(connection: Connection, age: float, limit: int) -> int:
    """Delete rows of nodes that have been inactive for ``age`` seconds and have no unfinished pinned tasks."""
    gone = sa.and_(
        sa.not_(nodes.c.active), sa.func.coalesce(nodes.c.checked_at, nodes.c.created_at) <= seconds_from_now(-age)
    )
    found = sa.select(nodes.c.id).where(gone).order_by(nodes.c.id).limit(limit).with_for_update(skip_locked=True)
    ids = connection.execute(found).scalars().all()
    pinned = sa.select(tasks.c.id).limit(1)
    free = [node_id for node_id in ids if connection.execute(pinned.where(_is_pinned_to(node_id))).first() is None]
    return connection.execute(sa.delete(nodes).where(nodes.c.id.in_(free), gone)).rowcount if free else 0


def _is_pinned_to(node_id: int) -> sa.ColumnElement[bool]:
    """An unfinished task is pinned to a node. There is no index for it: it is evaluated for nodes that are gone."""
    return sa.and_(tasks.c.node_id == node_id, tasks.c.status.not_in([str(status) for status in FINISHED]))


# ---------------------------------------------------------------- loads


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


def is_role_alive(connection: Connection, role: str, silence: float) -> bool:
    """Whether a process of a role, on any node, has sent a heartbeat in the last ``silence`` seconds."""
    alive = sa.select(processes.c.id).where(
        processes.c.role == role, processes.c.ended_at.is_(None), processes.c.checked_at > seconds_from_now(-silence)
    )
    return connection.execute(alive.limit(1)).first() is not None
