"""Nodes and their processes."""

from __future__ import annotations

from peerd.domain.ring import TasksAvailable
from peerd.operate import validation
from peerd.operate.operations import Mode, OperationGroup, Query, operation
from peerd.store.access.states import node_state
from peerd.store.nodes import nodes, processes
from peerd.store.nodes.nodes import Node
from peerd.store.nodes.processes import ProcessRecord

NodeList = list[Node]
ProcessList = list[ProcessRecord]


class NodeOperations(OperationGroup[Mode]):
    """``client.nodes``. What names a node raises `NodeNotFound` where no node has the name."""

    subject = "nodes"

    @operation(in_queues=True)
    def list(self) -> Query[NodeList]:
        """All nodes that ever registered, by name."""
        return Query("read", nodes.list_nodes)

    @operation
    def drain(self, name: str) -> Query[None]:
        """Stop the claims of a node; its running tasks go on."""
        query = Query("run", nodes.set_draining, validation.text("node", name), draining=True)
        return query.acting_on("node", name, node_state, name)

    @operation
    def undrain(self, name: str) -> Query[None]:
        """Let a node claim tasks again."""
        query = Query("run", nodes.set_draining, validation.text("node", name), draining=False)
        return query.acting_on("node", name, node_state, name).then_ring(TasksAvailable())

    @operation
    def forget(self, name: str) -> Query[None]:
        """Delete the row of a node that will not come back; the managers do it after ``[manager] max_node_age``.

        Raises:
            NodeStillAlive: its heartbeat is recent.
            NodeHasPinnedTasks: unfinished tasks are pinned to it.
        """
        query = Query("run", nodes.delete_node, validation.text("node", name))
        return query.acting_on("node", name, node_state, name)

    @operation(in_queues=True)
    def processes(self, *, ended: bool = False) -> Query[ProcessList]:
        """The processes of all nodes: the living ones, or all that are on record."""
        return Query("read", processes.list_processes, ended=ended)
