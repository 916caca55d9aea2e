"""Nodes: their names and ids, their beats, and who is alive."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from peerd.domain.errors import NodeHasPinnedTasks, NodeNotFound, NodeReplaced, NodeStillAlive
from peerd.domain.lifecycle import FINISHED
from peerd.store.schema.revisions import newest
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import nodes, tasks


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table ``nodes``."""

    id: int
    name: str
    incarnation: str | None
    address: str | None
    zone: str | None
    version: str | None
    revision: str | None
    """The newest revision of the tables that its code knows; None: from before revision 0002."""
    active: bool
    draining: bool
    started_at: datetime | None
    checked_at: datetime | None


ALIVE_WITHIN: Final = 60.0
"""Seconds since its last beat within which a node counts as alive for those who are about to delete its row."""
NODE_COLUMNS = tuple(nodes.c[field] for field in Node.__struct_fields__)
BY_NAME = sa.select(*NODE_COLUMNS).where(nodes.c.name == sa.bindparam("of_name"))
HEARTBEAT = (
    sa.update(nodes)
    .where(nodes.c.name == sa.bindparam("of_name"), nodes.c.incarnation == sa.bindparam("of_life"))
    .values(checked_at=now(), active=True)
)
"""Made once: they are run every few seconds by every node."""


def new_incarnation() -> str:
    """A name for one life of a node."""
    return uuid.uuid4().hex


def find_node(connection: Connection, name: str) -> Node | None:
    """The node of this name, if it ever registered."""
    row = connection.execute(BY_NAME, {"of_name": name}).mappings().first()
    return None if row is None else Node(**row)


def list_nodes(connection: Connection) -> list[Node]:
    """All nodes that ever registered, by name."""
    return [Node(**row) for row in connection.execute(sa.select(*NODE_COLUMNS).order_by(nodes.c.name)).mappings()]


def get_node_id(connection: Connection, name: str) -> int:
    """The id of a node's name.

    Raises:
        NodeNotFound: no node ever registered under it.
    """
    found = find_node(connection, name)
    if found is None:
        raise NodeNotFound(name, [node.name for node in list_nodes(connection)])
    return found.id


def is_node_alive(connection: Connection, name: str, silence: float) -> bool:
    """Whether an incarnation of this node has beaten within the last ``silence`` seconds, and has not ended since."""
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
    """Begin a life of a node, in place of the life that one has seen there.

    Args:
        connection: in a transaction of its own.
        name: the node's name.
        incarnation: from `new_incarnation`.
        replaces: the incarnation that stood in the row when one looked; None where there was none.
        address: where its doorbell will be.
        zone: where the machine stands.
        version: of peerd.

    Returns:
        the node's id, or None when another life has begun meanwhile.
    """
    itself = {"address": address, "zone": zone, "version": version, "revision": newest()}
    values = {"incarnation": incarnation, "active": True, **itself}
    as_seen = nodes.c.incarnation.is_(None) if replaces is None else nodes.c.incarnation == replaces
    statement = sa.update(nodes).where(nodes.c.name == name, as_seen)
    written = connection.execute(statement.values(started_at=now(), checked_at=now(), **values)).rowcount
    if not written and find_node(connection, name) is None:
        try:
            with connection.begin_nested():
                connection.execute(sa.insert(nodes).values(name=name, started_at=now(), checked_at=now(), **values))
        except IntegrityError:
            return None
    elif not written:
        return None
    return get_node_id(connection, name)


def heartbeat(connection: Connection, name: str, incarnation: str) -> Node:
    """Say that this life of the node goes on.

    Returns:
        the node's row, for what others have asked of it (draining).

    Raises:
        NodeReplaced: another life has begun under its name.
    """
    heartbeat_only(connection, name, incarnation)
    found = find_node(connection, name)
    assert found is not None
    return found


def heartbeat_only(connection: Connection, name: str, incarnation: str) -> None:
    """The same, in one statement.

    Raises:
        NodeReplaced: another life has begun under its name.
    """
    if not connection.execute(HEARTBEAT, {"of_name": name, "of_life": incarnation}).rowcount:
        raise NodeReplaced(name)


def deregister_node(connection: Connection, name: str, incarnation: str) -> None:
    """End this life of the node in good order: its name is free at once."""
    mine = sa.update(nodes).where(nodes.c.name == name, nodes.c.incarnation == incarnation)
    connection.execute(mine.values(incarnation=None, active=False, checked_at=now()))


def mark_node_silent(connection: Connection, name: str, incarnation: str) -> None:
    """End this life of the node as one that should go on: it counts as silent at once, and its name is free."""
    mine = sa.update(nodes).where(nodes.c.name == name, nodes.c.incarnation == incarnation)
    connection.execute(mine.values(active=False, checked_at=now()))


def deactivate_silent(connection: Connection, silence: float) -> list[str]:
    """Mark nodes inactive that have not beaten for ``silence`` seconds; their names.

    One whose row another session has locked is left out: it cannot beat.
    """
    silent = sa.and_(nodes.c.active, nodes.c.checked_at < seconds_from_now(-silence))
    found = sa.select(nodes.c.id, nodes.c.name).where(silent).order_by(nodes.c.id)
    gone = []
    for node_id, name in connection.execute(found.with_for_update(skip_locked=True)).all():
        if connection.execute(sa.update(nodes).where(nodes.c.id == node_id, silent).values(active=False)).rowcount:
            gone.append(name)
    return gone


def set_draining(connection: Connection, name: str, *, draining: bool) -> None:
    """Ask a node to take no new tasks, or to take them again.

    Raises:
        NodeNotFound: no node ever registered under this name.
    """
    node_id = get_node_id(connection, name)
    connection.execute(sa.update(nodes).where(nodes.c.id == node_id).values(draining=draining))


def delete_node(connection: Connection, name: str) -> None:
    """Delete the row of a node that is gone. Should it come back, it leaves at its next beat, as if it were replaced.

    Raises:
        NodeNotFound: no node ever registered under this name.
        NodeStillAlive: it has beaten within `ALIVE_WITHIN`, and has not left.
        NodeHasPinnedTasks: unfinished tasks may run on it only.
    """
    node_id = get_node_id(connection, name)
    if is_node_alive(connection, name, ALIVE_WITHIN):
        raise NodeStillAlive(name)
    waiting = sa.select(sa.func.count()).select_from(tasks).where(_may_run_only_on(node_id))
    if count := connection.execute(waiting).scalar_one():
        raise NodeHasPinnedTasks(name, count)
    connection.execute(sa.delete(nodes).where(nodes.c.id == node_id))


def purge_nodes(connection: Connection, age: float, limit: int) -> int:
    """Delete rows of nodes that have been inactive for ``age`` seconds, and that no unfinished task is pinned to."""
    gone = sa.and_(
        sa.not_(nodes.c.active), sa.func.coalesce(nodes.c.checked_at, nodes.c.created_at) <= seconds_from_now(-age)
    )
    found = sa.select(nodes.c.id).where(gone).order_by(nodes.c.id).limit(limit).with_for_update(skip_locked=True)
    ids = connection.execute(found).scalars().all()
    free = [node_id for node_id in ids if connection.execute(_one_task_of(node_id)).first() is None]
    return connection.execute(sa.delete(nodes).where(nodes.c.id.in_(free), gone)).rowcount if free else 0


def _one_task_of(node_id: int) -> sa.Select[int]:
    return sa.select(tasks.c.id).where(_may_run_only_on(node_id)).limit(1)


def _may_run_only_on(node_id: int) -> sa.ColumnElement[bool]:
    """That an unfinished task is pinned to a node. There is no index for it: it is asked about nodes that are gone."""
    return sa.and_(tasks.c.node_id == node_id, tasks.c.status.not_in([str(status) for status in FINISHED]))
