"""The page of a node: its row, and the live state of its slots."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from peerd.cli.output.formatting import first_line, format_age, format_timestamp, sanitize
from peerd.cli.output.tables import AlignedTable, make_key_value_table, right, wide
from peerd.domain.units import format_size
from peerd.operate.nodes import LiveNode, LiveSlot
from peerd.store.nodes import Node

LIVE_COLUMNS = (
    "process",
    "state",
    right("pid"),
    right("generation"),
    right("since"),
    right("running"),
    right("cpu"),
    right("memory"),
    wide("note"),
)
UNKNOWN = "–"


def render_node(node: Node, live: LiveNode | None, problem: str | None, now: datetime) -> RenderableType:
    """A node in full; what keeps it from answering instead of its processes."""
    parts: list[RenderableType] = [make_key_value_table(_details(node, live, now))]
    if live is not None:
        parts.append(AlignedTable(LIVE_COLUMNS, [_row(slot, now) for slot in live.slots]))
    if problem is not None:
        parts.append(Text(sanitize(problem), "red"))
    return Group(*parts)


def _details(node: Node, live: LiveNode | None, now: datetime) -> Iterator[tuple[str, str]]:
    yield "node", node.name
    yield "claims tasks", "no, it is drained" if node.draining else "yes"
    yield "master", UNKNOWN if live is None else f"{live.state}, process {live.pid}"
    yield "started", format_timestamp(node.started_at, now)
    yield "last heartbeat", format_timestamp(node.checked_at, now)
    yield from ((name, value) for name, value in (("address", node.address), ("zone", node.zone)) if value)
    yield "version", node.version or UNKNOWN


def _row(slot: LiveSlot, now: datetime) -> list[Text | str]:
    started = None if slot.started_at is None else datetime.fromisoformat(slot.started_at)
    style = {"RUNNING": "green", "BACKOFF": "bold red"}.get(slot.state, "yellow")
    notes = (slot.replacing, slot.error, slot.last_cause, f"{slot.leaving} leaving" if slot.leaving else None)
    return [
        slot.name,
        Text(slot.state.lower(), style),
        str(slot.pid or UNKNOWN),
        str(slot.generation),
        UNKNOWN if started is None else format_age(started, now),
        UNKNOWN if slot.in_flight is None else str(slot.in_flight),
        UNKNOWN if slot.cpu is None else f"{slot.cpu:.2f}",
        UNKNOWN if slot.memory is None else format_size(slot.memory),
        first_line(next((note for note in notes if note), None)),
    ]
