"""The status of a node as its master reports it: header, doorbell, reloads, and a row for each slot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from peerd.cli.output import (
    GAP,
    UNKNOWN,
    AlignedTable,
    Fields,
    first_line,
    format_elapsed,
    format_elapsed_short,
    pluralize,
    right,
    sanitize,
    wide,
)
from peerd.domain.units import format_size

SLOT_STATE_STYLES: Final = {
    "RUNNING": "green", "STARTING": "cyan", "BACKOFF": "bold red", "DRAINING": "yellow", "EXITED": "bright_black",
    "STOPPED": "bright_black",
}  # fmt: skip
MASTER_STATE_STYLES: Final = {"running": "green", "starting": "cyan", "stopping": "yellow"}
NOTES_MIN_WIDTH: Final = 100
"""The width of a terminal from which the notes are a column, not lines below the table."""
LAG_WARNING: Final = 1.0
"""Seconds of event-loop lag that are shown as a warning."""
SILENCE_WARNING: Final = 6.0
"""Seconds without a heartbeat to the master, due every two seconds, that are shown as silence."""

Slot = Mapping[str, Any]
"""A slot as the master reports it."""


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
    return Group(
        title,
        Text(f"run directory {sanitize(node_status['run_directory'])}", "bright_black"),
        *_describe_doorbell(node_status.get("doorbell")),
        *_describe_reloads(node_status["reloads"]),
        SlotsTable(node_status["slots"], now),
        *_describe_failing_components(node_status.get("components") or ()),
    )


def _describe_doorbell(doorbell: Mapping[str, Any] | None) -> Iterator[Text]:
    if doorbell is None:
        return
    address = f", at {doorbell['address']}" if doorbell["address"] else ""
    if doorbell["works"]:
        yield Text.assemble("doorbell ", ("works", "green"), f" by {doorbell['transport']}{address}")
    else:
        yield Text.assemble("doorbell ", ("does not work", "yellow"), f"{address}: {first_line(doorbell['reason'])}")


def _describe_failing_components(components: Sequence[Mapping[str, Any]]) -> Iterator[Text]:
    for component in components:
        if component["failures"]:
            failed = f" of the agent has failed {pluralize(component['failures'], 'time')} in a row: "
            name = (sanitize(component["name"]), "bold")
            yield Text.assemble("component ", name, failed, first_line(component["last_error"]))


def _describe_reloads(reloads: Sequence[Mapping[str, Any]]) -> Iterator[Text]:
    """The last reload if it was abandoned, and those that have not ended."""
    if reloads and reloads[-1]["progress"] == "abandoned":
        yield Text.assemble(("the last reload was abandoned: ", "red"), first_line(reloads[-1]["error"]))
    for reload in reloads:
        if reload["progress"] in {"waiting", "running"}:
            kinds = ", ".join(f"{sanitize(kind)} {first_line(how)}" for kind, how in reload["kinds"].items())
            yield Text.assemble((f"reload {reload['progress']}", "cyan"), f": {kinds}" if kinds else "")


class SlotsTable:
    """A row for each slot; the notes are a column in a wide terminal, and lines below the table in a narrow one."""

    def __init__(self, slots: Sequence[Mapping[str, Any]], now: datetime) -> None:
        self._slots = slots
        self._now = now

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it as wide as there is room."""
        fields = _slot_fields(self._now)
        if options.max_width >= NOTES_MIN_WIDTH:
            notes: Fields[Slot] = ((wide("notes"), lambda slot: _describe_slot(slot, self._now)),)
            yield AlignedTable([*fields, *notes], self._slots)
            return
        yield AlignedTable(fields, self._slots)
        for slot in self._slots:
            if note := _describe_slot(slot, self._now):
                yield Padding(Text.assemble((f"{sanitize(slot['name'])}: ", "bold"), note), (0, 0, 0, GAP))


def _slot_fields(now: datetime) -> Fields[Slot]:
    return (
        ("slot", lambda slot: str(slot["name"])),
        ("state", lambda slot: Text(slot["state"].lower(), SLOT_STATE_STYLES.get(slot["state"], ""))),
        (right("gen", drop_priority=3), lambda slot: str(slot["generation"])),
        (right("pid"), lambda slot: str(slot["pid"] or UNKNOWN)),
        (right("up"), lambda slot: UNKNOWN if slot["started_at"] is None else _age(slot["started_at"], now)),
        (right("restarts"), lambda slot: Text(str(slot["restarts"]), "yellow" if slot["restarts"] else "")),
        (right("memory", drop_priority=1), lambda slot: _describe_report(slot["sample"], "memory", format_size)),
        (right("cpu", drop_priority=2), lambda slot: _describe_report(slot["sample"], "cpu", _format_cpu)),
        (right("lag", drop_priority=4), lambda slot: _format_lag(slot["vitals"], _silence_of(slot))),
        (right("tasks"), lambda slot: _describe_report(slot["vitals"], "in_flight", str)),
    )


def _format_cpu(share: float) -> str:
    return f"{100 * share:.0f} %"


def _describe_report(report: Mapping[str, Any] | None, name: str, describe: Callable[[Any], str]) -> str:
    value = (report or {}).get(name)
    return UNKNOWN if value is None else describe(value)


def _age(since: str, now: datetime) -> str:
    return format_elapsed_short((now - datetime.fromisoformat(since)).total_seconds())


def _silence_of(slot: Mapping[str, Any]) -> float | None:
    """Seconds since the last heartbeat, if they are many; masters of earlier versions report none."""
    silent_for = slot.get("silent_for")
    return silent_for if silent_for is not None and silent_for >= SILENCE_WARNING else None


def _format_lag(vitals: Mapping[str, Any] | None, silent_for: float | None) -> Text | str:
    if silent_for is not None:
        return Text(f"silent {format_elapsed_short(silent_for)}", "bold red")
    if vitals is None:
        return UNKNOWN
    lag = vitals.get("lag")
    if lag is None:
        return Text("blocked", "bold red")
    return f"{1000 * lag:.0f} ms" if lag < LAG_WARNING else Text(f"{lag:.1f} s", "yellow")


def _describe_slot(slot: Slot, now: datetime) -> str:
    return "; ".join(_slot_notes(slot, now))


def _slot_notes(slot: Mapping[str, Any], now: datetime) -> Iterator[str]:
    """Changes that are under way in a slot, and how its last process ended."""
    if (silent_for := _silence_of(slot)) is not None:
        yield f"no heartbeat for {format_elapsed(silent_for)}: the process is stopped, or the machine is overloaded"
    if slot["replacing"]:
        yield first_line(str(slot["replacing"]))
    for leaving in slot["leaving"]:
        reason = f": {first_line(leaving['reason'])}" if leaving.get("reason") else ""
        process = f"process {leaving['pid']} of generation {leaving['generation']}"
        has_clients = slot["role"] == "gateway" and leaving.get("in_flight")
        clients = f", still serves {pluralize(leaving['in_flight'], 'client')}" if has_clients else ""
        yield f"{process} is leaving, {_age(leaving['started_at'], now)} old{clients}{reason}"
    if error := slot["error"] or (slot["last_cause"] or {}).get("text"):
        yield first_line(str(error))
