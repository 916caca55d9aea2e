"""Nodes: their names and ids, their beats, and who is alive."""

from __future__ import annotations

import uuid
from datetime import datetime

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from peerd.domain.errors import NodeNotFound, NodeReplaced
from peerd.store.clock import now, seconds_from_now
from peerd.store.revisions import newest
from peerd.store.tables import nodes


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


NODE_COLUMNS = tuple(nodes.c[field] for field in Node.__struct_fields__)
BY_NAME = sa.select(*NODE_COLUMNS).where(nodes.c.name == sa.bindparam("of_name"))
BEAT = (
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


def node_id_of(connection: Connection, name: str) -> int:
    """The id of a node's name.

    Raises:
        NodeNotFound: no node ever registered under it.
    """
    found = find_node(connection, name)
    if found is None:
        raise NodeNotFound(name, [node.name for node in list_nodes(connection)])
    return found.id


def is_alive(connection: Connection, name: str, silence: float) -> bool:
    """Whether an incarnation of this node has beaten within the last ``silence`` seconds and did not leave."""
    fresh = sa.select(nodes.c.id).where(
        nodes.c.name == name, nodes.c.incarnation.is_not(None), nodes.c.checked_at > seconds_from_now(-silence)
    )
    return connection.execute(fresh).first() is not None


def register(
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
    return node_id_of(connection, name)


def beat(connection: Connection, name: str, incarnation: str) -> Node:
    """Say that this life of the node goes on.

    Returns:
        the node's row, for what others have asked of it (draining).

    Raises:
        NodeReplaced: another life has begun under its name.
    """
    keep_alive(connection, name, incarnation)
    found = find_node(connection, name)
    assert found is not None
    return found


def keep_alive(connection: Connection, name: str, incarnation: str) -> None:
    """The same, in one statement.

    Raises:
        NodeReplaced: another life has begun under its name.
    """
    if not connection.execute(BEAT, {"of_name": name, "of_life": incarnation}).rowcount:
        raise NodeReplaced(name)


def leave(connection: Connection, name: str, incarnation: str) -> None:
    """End this life of the node in good order: its name is free at once."""
    mine = sa.update(nodes).where(nodes.c.name == name, nodes.c.incarnation == incarnation)
    connection.execute(mine.values(incarnation=None, active=False, checked_at=now()))


def deactivate_silent(connection: Connection, silence: float) -> list[str]:
    """Mark nodes inactive that have not beaten for ``silence`` seconds; their names."""
    silent = sa.and_(nodes.c.active, nodes.c.checked_at < seconds_from_now(-silence))
    gone = []
    for node_id, name in connection.execute(sa.select(nodes.c.id, nodes.c.name).where(silent)).all():
        if connection.execute(sa.update(nodes).where(nodes.c.id == node_id, silent).values(active=False)).rowcount:
            gone.append(name)
    return gone


def set_draining(connection: Connection, name: str, *, draining: bool) -> None:
    """Ask a node to take no new tasks, or to take them again.

    Raises:
        NodeNotFound: no node ever registered under this name.
    """
    node_id = node_id_of(connection, name)
    connection.execute(sa.update(nodes).where(nodes.c.id == node_id).values(draining=draining))
