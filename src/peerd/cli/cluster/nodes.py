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
from peerd.cli.context import Desk
from peerd.cli.output.formatting import ago, plain
from peerd.cli.output.tables import Column, Rows, table
from peerd.store.nodes.nodes import Node

app = new_app(__doc__, no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="NODE", help="Names of nodes.", show_default=False)]


@command(app, "list")
def list_nodes(desk: Desk) -> None:
    """List all nodes that ever registered, with their living processes."""
    nodes = desk.client.nodes.list()
    processes = desk.client.nodes.processes()
    answer = [
        {
            **msgspec.to_builtins(node),
            "state": state_of(node),
            "processes": [p for p in processes if p.node_id == node.id],
        }
        for node in nodes
    ]
    running = Counter(process.node_id for process in processes)
    desk.answer(answer, lambda: nodes_table(nodes, running, desk.client.now()))


@command(app)
def drain(desk: Desk, nodes: Names) -> None:
    """Let nodes take no new tasks; what runs there goes on. The node itself stays up."""
    for name in nodes:
        desk.client.nodes.drain(name)
    desk.answer({"draining": nodes}, *[Text(f"{plain(name)} takes no new tasks") for name in nodes])


@command(app)
def undrain(desk: Desk, nodes: Names) -> None:
    """Let drained nodes take tasks again."""
    for name in nodes:
        desk.client.nodes.undrain(name)
    desk.answer({"undrained": nodes}, *[Text(f"{plain(name)} takes tasks") for name in nodes])


@command(app)
def forget(desk: Desk, nodes: Names) -> None:
    """Delete the rows of nodes that will not come back. One that is alive, or that tasks are pinned to, is refused."""
    for name in nodes:
        desk.client.nodes.forget(name)
    desk.answer({"forgotten": nodes}, *[Text(f"{plain(name)} is forgotten") for name in nodes])


STATES = {"active": "green", "draining": "yellow", "silent": "bold red", "stopped": "bright_black"}
COLUMNS = (
    Column("node"),
    Column("state"),
    Column("seen", right=True),
    Column("processes", right=True),
    Column("zone"),
    Column("version"),
    Column("address", wide=True),
)


def state_of(node: Node) -> str:
    """A node in a word: active, draining, silent (it should be there and is not), stopped (in good order)."""
    if node.incarnation is None:
        return "stopped"
    if not node.active:
        return "silent"
    return "draining" if node.draining else "active"


def nodes_table(nodes: Sequence[Node], running: Mapping[int, int], now: datetime) -> Rows:
    """Nodes for people."""
    return table(COLUMNS, [_row(node, running.get(node.id, 0), now) for node in nodes])


def _row(node: Node, processes: int, now: datetime) -> list[Text]:
    state = state_of(node)
    drained = " (drained)" if node.draining and state != "draining" else ""
    return [
        Text(plain(node.name)),
        Text(state + drained, STATES[state]),
        Text(ago(node.checked_at, now)),
        Text(str(processes)),
        Text(plain(node.zone or "–")),
        Text(plain(node.version or "–")),
        Text(plain(node.address or "–")),
    ]
