"""The node of this machine, for people: what its master says of each slot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from peerd.cli.output.formatting import first_line, format_elapsed, format_elapsed_short, pluralize, sanitize
from peerd.cli.output.tables import GAP, Column, table
from peerd.domain.size import format_size

SLOT_STATE_STYLES: Final = {
    "RUNNING": "green", "STARTING": "cyan", "BACKOFF": "bold red", "DRAINING": "yellow", "EXITED": "bright_black",
    "STOPPED": "bright_black",
}  # fmt: skip
MASTER_STATE_STYLES: Final = {"running": "green", "starting": "cyan", "stopping": "yellow"}
NOTES_MIN_WIDTH: Final = 100
"""Columns of a terminal from which the notes stand beside the figures, and not below."""
LAG_WARNING: Final = 1.0
"""Seconds of a loop's lag that are shown as a warning."""
SILENCE_WARNING: Final = 6.0
"""Seconds without a word from a process, which says something every two seconds, that are shown as silence."""
UNKNOWN: Final = "–"

_COLUMNS: Final = (
    Column("slot"),
    Column("state"),
    Column("gen", right=True, drop_priority=3),
    Column("pid", right=True),
    Column("up", right=True),
    Column("restarts", right=True),
    Column("memory", right=True, drop_priority=1),
    Column("cpu", right=True, drop_priority=2),
    Column("lag", right=True, drop_priority=4),
    Column("tasks", right=True),
)
_COLUMNS_WITH_NOTES: Final = (*_COLUMNS, Column("last end, or what goes on", wide=True))


def render_node(node_status: Mapping[str, Any] | None, now: datetime) -> RenderableType:
    """The node, its master, and a row for each slot; ages are counted up to `now`."""
    if node_status is None:
        return Text.assemble(("no node is running here", "bold"), "; start one with peerd up, or peerd start")
    up = format_elapsed((now - datetime.fromisoformat(node_status["started_at"])).total_seconds())
    title = Text.assemble(
        (f"node {sanitize(node_status['node'])} ", "bold"),
        (node_status["state"], MASTER_STATE_STYLES.get(node_status["state"], "")),
        f"{' for' if node_status['state'] == 'running' else ', up for'} {up}, master is process {node_status['pid']}",
        " in the background" if node_status["background"] else "",
    )
    folder = Text(f"run directory {sanitize(node_status['run_directory'])}", "bright_black")
    troubles = _describe_failing_components(node_status.get("components") or ())
    return Group(
        title,
        folder,
        *_describe_doorbell(node_status.get("bell")),
        *_describe_reloads(node_status["reloads"]),
        slots_table(node_status, now),
        *troubles,
    )


def _describe_doorbell(bell: Mapping[str, Any] | None) -> Iterator[Text]:
    """Whether the doorbell works, and why not."""
    if bell is None:
        return
    where = f", at {bell['address']}" if bell["address"] else ""
    if bell["works"]:
        yield Text.assemble("doorbell ", ("works", "green"), f" by {bell['way']}{where}")
    else:
        yield Text.assemble("doorbell ", ("does not work", "yellow"), f"{where}: {first_line(bell['reason'])}")


def _describe_failing_components(components: Sequence[Mapping[str, Any]]) -> Iterator[Text]:
    """Those of the agent that fail, or have failed lately: it goes on without them."""
    for one in components:
        if one["failures"]:
            failed = f" of the agent has failed {pluralize(one['failures'], 'time')} in a row: "
            yield Text.assemble(
                ("component ", ""), (sanitize(one["name"]), "bold"), failed, first_line(one["last_error"])
            )


def _describe_reloads(reloads: Sequence[Mapping[str, Any]]) -> Iterator[Text]:
    """The one that goes on, and the last one if something was left as it was."""
    if reloads and reloads[-1]["progress"] == "abandoned":
        yield Text.assemble(("the last reload was abandoned: ", "red"), first_line(reloads[-1]["error"]))
    for one in reloads:
        if one["progress"] in {"waiting", "running"}:
            kinds = ", ".join(f"{sanitize(kind)} {first_line(how)}" for kind, how in one["kinds"].items())
            yield Text.assemble((f"reload {one['progress']}", "cyan"), f": {kinds}" if kinds else "")


def slots_table(node_status: Mapping[str, Any], now: datetime) -> RenderableType:
    """A row for each slot."""
    return _SlotsTable(node_status["slots"], now)


class _SlotsTable:
    """The notes are beside the figures in a wide terminal, and below them in a narrow one."""

    def __init__(self, slots: Sequence[Mapping[str, Any]], now: datetime) -> None:
        self._slots = slots
        self._now = now

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it as wide as there is room."""
        rows = [_slot_cells(slot, self._now) for slot in self._slots]
        notes = ["; ".join(_slot_notes(slot, self._now)) for slot in self._slots]
        if options.max_width >= NOTES_MIN_WIDTH:
            yield table(_COLUMNS_WITH_NOTES, [[*row, Text(note)] for row, note in zip(rows, notes, strict=True)])
            return
        yield table(_COLUMNS, rows)
        for slot, note in zip(self._slots, notes, strict=True):
            if note:
                yield Padding(Text.assemble((f"{sanitize(slot['name'])}: ", "bold"), note), (0, 0, 0, GAP))


def _slot_cells(slot: Mapping[str, Any], now: datetime) -> list[Text]:
    since = slot["started_at"]
    age = UNKNOWN if since is None else format_elapsed_short((now - datetime.fromisoformat(since)).total_seconds())
    sample, vitals = slot["sample"] or {}, slot["vitals"]
    return [
        Text(sanitize(slot["name"])),
        Text(slot["state"].lower(), SLOT_STATE_STYLES.get(slot["state"], "")),
        Text(str(slot["generation"])),
        Text(str(slot["pid"] or UNKNOWN)),
        Text(age),
        Text(str(slot["restarts"]), "yellow" if slot["restarts"] else ""),
        Text(_format_memory(sample.get("memory"))),
        Text(_format_cpu(sample.get("cpu"))),
        _format_lag(vitals, _silence_of(slot)),
        Text(UNKNOWN if vitals is None or vitals.get("in_flight") is None else str(vitals["in_flight"])),
    ]


def _format_memory(size: int | None) -> str:
    return UNKNOWN if size is None else format_size(size)


def _format_cpu(cpu: float | None) -> str:
    return UNKNOWN if cpu is None else f"{100 * cpu:.0f} %"


def _silence_of(slot: Mapping[str, Any]) -> float | None:
    """Seconds for which its process has said nothing, if they are many; an earlier version of a master tells none."""
    silent_for = slot.get("silent_for")
    return silent_for if silent_for is not None and silent_for >= SILENCE_WARNING else None


def _format_lag(vitals: Mapping[str, Any] | None, silent_for: float | None) -> Text:
    if silent_for is not None:
        return Text(f"silent {format_elapsed_short(silent_for)}", "bold red")
    if vitals is None:
        return Text(UNKNOWN)
    lag = vitals.get("lag")
    if lag is None:
        return Text("blocked", "bold red")
    if lag < LAG_WARNING:
        return Text(f"{1000 * lag:.0f} ms")
    return Text(f"{lag:.1f} s", "yellow")


def _slot_notes(slot: Mapping[str, Any], now: datetime) -> Iterator[str]:
    """What goes on in a slot, else how its last process ended."""
    if (silent_for := _silence_of(slot)) is not None:
        yield f"no heartbeat for {format_elapsed(silent_for)}: the process is stopped, or the machine is overloaded"
    if slot["replacing"]:
        yield first_line(str(slot["replacing"]))
    for leaving in slot["leaving"]:
        age = format_elapsed_short((now - datetime.fromisoformat(leaving["started_at"])).total_seconds())
        why = f": {first_line(leaving['reason'])}" if leaving.get("reason") else ""
        yield f"process {leaving['pid']} of generation {leaving['generation']} is leaving, {age} old{why}"
    if error := slot["error"] or (slot["last_cause"] or {}).get("text"):
        yield first_line(str(error))
