"""List, drain, undrain and forget nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import CommandContext
from peerd.cli.output.formatting import format_age, sanitize
from peerd.cli.output.tables import AlignedTable, Column, table
from peerd.store.nodes.nodes import Node

app = new_app(__doc__, no_args_is_help=True)

NodeNames = Annotated[list[str], typer.Argument(metavar="NODE", help="Names of nodes.", show_default=False)]


@command(app, "list")
def list_nodes(context: CommandContext) -> None:
    """List all nodes that ever registered, with their living processes."""
    nodes = context.client.nodes.list()
    processes = context.client.nodes.processes()
    answer = [
        {
            **msgspec.to_builtins(node),
            "state": node_state(node),
            "processes": [p for p in processes if p.node_id == node.id],
        }
        for node in nodes
    ]
    running = Counter(process.node_id for process in processes)
    context.answer(answer, lambda: nodes_table(nodes, running, context.client.now()))


@command(app)
def drain(context: CommandContext, nodes: NodeNames) -> None:
    """Let nodes take no new tasks; what runs there goes on. The node itself stays up."""
    for name in nodes:
        context.client.nodes.drain(name)
    context.answer({"draining": nodes}, *[Text(f"{sanitize(name)} takes no new tasks") for name in nodes])


@command(app)
def undrain(context: CommandContext, nodes: NodeNames) -> None:
    """Let drained nodes take tasks again."""
    for name in nodes:
        context.client.nodes.undrain(name)
    context.answer({"undrained": nodes}, *[Text(f"{sanitize(name)} takes tasks") for name in nodes])


@command(app)
def forget(context: CommandContext, nodes: NodeNames) -> None:
    """Delete the rows of nodes that will not come back. One that is alive, or that tasks are pinned to, is refused."""
    for name in nodes:
        context.client.nodes.forget(name)
    context.answer({"forgotten": nodes}, *[Text(f"{sanitize(name)} is forgotten") for name in nodes])


NODE_STATE_STYLES = {"active": "green", "draining": "yellow", "silent": "bold red", "stopped": "bright_black"}
COLUMNS = (
    Column("node"),
    Column("state"),
    Column("seen", right=True),
    Column("processes", right=True),
    Column("zone"),
    Column("version"),
    Column("address", wide=True),
)


def node_state(node: Node) -> str:
    """A node in a word: active, draining, silent (it should be there and is not), stopped (in good order)."""
    if node.incarnation is None:
        return "stopped"
    if not node.active:
        return "silent"
    return "draining" if node.draining else "active"


def nodes_table(nodes: Sequence[Node], running: Mapping[int, int], now: datetime) -> AlignedTable:
    """Nodes for people."""
    return table(COLUMNS, [_row(node, running.get(node.id, 0), now) for node in nodes])


def _row(node: Node, processes: int, now: datetime) -> list[Text]:
    state = node_state(node)
    drained = " (drained)" if node.draining and state != "draining" else ""
    return [
        Text(sanitize(node.name)),
        Text(state + drained, NODE_STATE_STYLES[state]),
        Text(format_age(node.checked_at, now)),
        Text(str(processes)),
        Text(sanitize(node.zone or "–")),
        Text(sanitize(node.version or "–")),
        Text(sanitize(node.address or "–")),
    ]
