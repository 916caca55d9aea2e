"""The commands ``peerd nodes …``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text
from typer import Argument, Option

from peerd.cli.arguments import parse_duration_option
from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.output import (
    UNKNOWN,
    AlignedTable,
    Fields,
    first_line,
    format_age,
    format_timestamp,
    make_key_value_table,
    right,
    sanitize,
    wide,
)
from peerd.domain.errors import NodeRequestFailed, NodeUnreachable, NotPermitted
from peerd.domain.units import format_size
from peerd.operate.nodes import LiveNode, LiveSlot
from peerd.store.nodes import Node, NodeLoad
from peerd.store.processes import ProcessRecord, process_state

app = new_app("List, show, drain, undrain and forget nodes.")

NodeNames = Annotated[list[str], Argument(metavar="NODE", help="Names of nodes.")]
SHOWN_ENDS = 10
"""Processes that have ended, the newest first."""
NODE_STATE_STYLES = {"active": "green", "draining": "yellow", "silent": "bold red", "stopped": "bright_black"}


@command(app, "list")
def list_nodes(context: CommandContext) -> None:
    """List all nodes that ever registered, with their running processes and tasks."""
    nodes = context.client.nodes.list()
    processes = context.client.nodes.processes()
    loads = context.client.nodes.loads()
    load_of = _loads_by_name(loads)
    answer = [
        {
            **msgspec.to_builtins(node),
            "state": node.state,
            "running": load_of[node.name].running,
            "slots": load_of[node.name].slots,
            "processes": _with_states(processes, node),
        }
        for node in nodes
    ]
    context.print_result(answer, lambda: nodes_table(nodes, processes, loads, context.now))


@command(app)
def show(
    context: CommandContext,
    node: Annotated[str, Argument(metavar="NODE", help="The name of the node.")],
    timeout: Annotated[str, Option(metavar="DURATION", help="Wait at most this long for its answer.")] = "20s",
) -> None:
    """Show a node, and the live state of its processes, wherever it runs."""
    seconds = parse_duration_option("--timeout", timeout)
    row = context.client.nodes.get(node)
    live, problem = None, None
    mine = _with_states(context.client.nodes.processes(ended=True), row)
    ends = sorted((one for one in mine if one["ended_at"]), key=lambda one: one["ended_at"], reverse=True)[:SHOWN_ENDS]
    lost = context.client.nodes.lost_tasks()
    ended = [{**one, "tasks": lost.get(one["id"], [])} for one in ends]
    try:
        live = context.client.nodes.state(node, timeout=seconds)
    except (NodeUnreachable, NodeRequestFailed, NotPermitted) as error:
        problem = str(error)
    answer = {**msgspec.to_builtins(row), "state": row.state, "live": live, "problem": problem, "ended": ended}
    shown = [
        f"{one['slot']} {one['state']}, last heartbeat {one['checked_at']}"
        for one in mine
        if live is None and not one["ended_at"]
    ]
    shown += [_end_line(one) for one in ended]
    context.print_result(
        answer, lambda: render_node(row, live, problem, context.now), *shown, failed=problem is not None
    )


@command(app)
def drain(context: CommandContext, nodes: NodeNames) -> None:
    """Stop nodes from claiming tasks; running tasks continue, and the node stays up."""
    context.act_on_each(nodes, context.client.nodes.drain, "draining", "claims no more tasks")


@command(app)
def undrain(context: CommandContext, nodes: NodeNames) -> None:
    """Let drained nodes claim tasks again."""
    context.act_on_each(nodes, context.client.nodes.undrain, "undrained", "claims tasks")


@command(app)
def forget(context: CommandContext, nodes: NodeNames) -> None:
    """Delete the rows of nodes that are gone for good.

    A node that is alive, or that has pinned tasks, is refused.
    """
    context.act_on_each(nodes, context.client.nodes.forget, "forgotten", "is forgotten")


def _end_line(one: Mapping[str, Any]) -> str:
    ran = f"; it ran {', '.join(f'task {task_id}' for task_id in one['tasks'][:5])}" if one["tasks"] else ""
    return f"{one['slot']} ended {one['ended_at']}: {sanitize(one['cause'] or 'the cause is not known')}{ran}"


def _with_states(processes: Sequence[ProcessRecord], node: Node) -> list[dict[str, Any]]:
    mine = [one for one in processes if one.node_id == node.id]
    return [{**msgspec.to_builtins(one), "state": process_state(one, node)} for one in mine]


def _loads_by_name(loads: Iterable[NodeLoad]) -> Mapping[str, NodeLoad]:
    """The load of each node; of one that has registered since they were read, none."""
    found = {load.name: load for load in loads}
    return defaultdict(lambda: NodeLoad(name="", running=0, slots=0), found)


def nodes_table(
    nodes: Iterable[Node], processes: Iterable[ProcessRecord], loads: Iterable[NodeLoad], now: datetime
) -> AlignedTable:
    """A row for each node, with its number of running processes, and its running tasks of so many slots."""
    load_of = _loads_by_name(loads)
    counts = Counter(process.node_id for process in processes)
    fields: Fields[Node] = (
        ("node", lambda node: node.name),
        ("state", _render_state),
        (right("seen"), lambda node: format_age(node.checked_at, now)),
        (right("processes"), lambda node: str(counts[node.id])),
        (right("running"), lambda node: f"{load_of[node.name].running}/{load_of[node.name].slots}"),
        ("zone", lambda node: node.zone or UNKNOWN),
        ("version", lambda node: node.version or UNKNOWN),
        (wide("address"), lambda node: node.address or UNKNOWN),
    )
    return AlignedTable(fields, nodes)


def _render_state(node: Node) -> Text:
    state = node.state
    drained = " (drained)" if node.draining and state != "draining" else ""
    return Text(state + drained, NODE_STATE_STYLES[state])


# ---------------------------------------------------------------- one node


def render_node(node: Node, live: LiveNode | None, problem: str | None, now: datetime) -> RenderableType:
    """A node in full; what keeps it from answering instead of its processes."""
    parts: list[RenderableType] = [make_key_value_table(_details(node, live, now))]
    if live is not None:
        parts.append(_slots_table(live.slots, now))
    if problem is not None:
        parts.append(Text(sanitize(problem), "red"))
    return Group(*parts)


def _details(node: Node, live: LiveNode | None, now: datetime) -> Iterator[tuple[str, str | None]]:
    yield "node", node.name
    yield "claims tasks", "no, it is drained" if node.draining else "yes"
    yield "master", UNKNOWN if live is None else f"{live.state}, process {live.pid}"
    yield "started", format_timestamp(node.started_at, now)
    yield "last heartbeat", format_timestamp(node.checked_at, now)
    yield "address", node.address or None
    yield "zone", node.zone or None
    yield "version", node.version or UNKNOWN


def _slots_table(slots: Sequence[LiveSlot], now: datetime) -> AlignedTable:
    styles = {"RUNNING": "green", "BACKOFF": "bold red"}
    fields: Fields[LiveSlot] = (
        ("process", lambda slot: slot.name),
        ("state", lambda slot: Text(slot.state.lower(), styles.get(slot.state, "yellow"))),
        (right("pid"), lambda slot: str(slot.pid or UNKNOWN)),
        (right("generation"), lambda slot: str(slot.generation)),
        (right("since"), lambda slot: _describe_start(slot, now)),
        (right("running"), lambda slot: UNKNOWN if slot.in_flight is None else str(slot.in_flight)),
        (right("cpu"), lambda slot: UNKNOWN if slot.cpu is None else f"{slot.cpu:.2f}"),
        (right("memory"), lambda slot: UNKNOWN if slot.memory is None else format_size(slot.memory)),
        (wide("note"), _describe_slot),
    )
    return AlignedTable(fields, slots)


def _describe_start(slot: LiveSlot, now: datetime) -> str:
    return format_age(datetime.fromisoformat(slot.started_at), now) if slot.started_at else UNKNOWN


def _describe_slot(slot: LiveSlot) -> str:
    leaving = f"{slot.leaving} leaving" if slot.leaving else None
    return first_line(slot.replacing or slot.error or slot.last_cause or leaving)
