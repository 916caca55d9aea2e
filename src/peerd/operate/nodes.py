"""Nodes and their processes: who is there, who is silent, who shall take no new tasks."""

from __future__ import annotations

from peerd.domain.ring import Work
from peerd.operate import validation
from peerd.operate.operations import Ask, Colour, Group, operation, reading, writing
from peerd.store.nodes import nodes, processes
from peerd.store.nodes.nodes import Node
from peerd.store.nodes.processes import Process

NodeList = list[Node]
ProcessList = list[Process]


class Nodes(Group[Colour]):
    """``client.nodes``."""

    @operation
    def list(self) -> Ask[NodeList]:
        """All nodes that ever registered, by name."""
        return reading(nodes.list_nodes)

    @operation
    def drain(self, name: str) -> Ask[None]:
        """Ask a node to take no new tasks; what runs there goes on.

        Raises:
            NodeNotFound: no node has this name.
        """
        return writing(nodes.set_draining, validation.text("node", name), draining=True)

    @operation
    def undrain(self, name: str) -> Ask[None]:
        """Let a node take tasks again.

        Raises:
            NodeNotFound: no node has this name.
        """
        return writing(nodes.set_draining, validation.text("node", name), draining=False).and_ring(Work())

    @operation
    def forget(self, name: str) -> Ask[None]:
        """Delete the row of a node that will not come back; the managers do it after ``[manager] max_node_age``.

        Raises:
            NodeNotFound: no node has this name.
            NodeStillAlive: it beats.
            NodeStillAwaited: unfinished tasks are pinned to it.
        """
        return writing(nodes.forget, validation.text("node", name))

    @operation
    def processes(self, *, ended: bool = False) -> Ask[ProcessList]:
        """The processes of all nodes: the living ones, or all that are on record."""
        return reading(processes.list_processes, ended=ended)
