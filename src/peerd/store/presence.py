"""A process enters the table: below its node, with an identity of its own."""

from __future__ import annotations

from peerd.domain.errors import NodeNotRunning
from peerd.runtime.link import Link
from peerd.store.database import Database
from peerd.store.migrate import require_newest
from peerd.store.nodes import Node, find_node
from peerd.store.processes import register_process


def enter(database: Database, link: Link) -> tuple[Node, int]:
    """Register this process below its node, which its agent has registered.

    Args:
        database: where; not inside a transaction.
        link: who the process is.

    Returns:
        the node, and the process's identity.

    Raises:
        NodeNotRunning: the agent has not.
        SchemaMissing: the tables are not as this version needs them.
    """
    require_newest(database)
    node = database.read(find_node, link.node)
    if node is None or node.incarnation is None:
        raise NodeNotRunning(link.node)
    process_id = database.run(
        register_process,
        node_id=node.id,
        incarnation=node.incarnation,
        kind=link.kind,
        slot=link.slot,
        role=link.role,
        pid=link.pid,
    )
    return node, process_id
