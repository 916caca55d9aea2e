"""The node of this machine, for people: what its master says of each slot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from peerd.cli.output.formatting import first_line, many, plain, short_span, span
from peerd.cli.output.tables import GAP, Column, table
from peerd.domain.size import format_size

STATES: Final = {
    "RUNNING": "green", "STARTING": "cyan", "BACKOFF": "bold red", "DRAINING": "yellow", "EXITED": "bright_black",
    "STOPPED": "bright_black",
}  # fmt: skip
PHASES: Final = {"running": "green", "starting": "cyan", "stopping": "yellow"}
NOTES_NEED: Final = 100
"""Columns of a terminal from which the notes stand beside the figures, and not below."""
LATE: Final = 1.0
"""Seconds of a loop's lag that are shown as a warning."""
SILENT: Final = 6.0
"""Seconds without a word from a process, which says something every two seconds, that are shown as silence."""
UNKNOWN: Final = "–"

_FIGURES: Final = (
    Column("slot"),
    Column("state"),
    Column("gen", right=True, spare=3),
    Column("pid", right=True),
    Column("up", right=True),
    Column("restarts", right=True),
    Column("memory", right=True, spare=1),
    Column("cpu", right=True, spare=2),
    Column("lag", right=True, spare=4),
    Column("tasks", right=True),
)
_WITH_NOTES: Final = (*_FIGURES, Column("last end, or what goes on", wide=True))


def node_here(here: Mapping[str, Any] | None, now: datetime) -> RenderableType:
    """The node, its master, and a row for each slot; ages are counted up to `now`."""
    if here is None:
        return Text.assemble(("no node is running here", "bold"), "; start one with peerd up, or peerd start")
    up = span((now - datetime.fromisoformat(here["started_at"])).total_seconds())
    title = Text.assemble(
        (f"node {plain(here['node'])} ", "bold"),
        (here["state"], PHASES.get(here["state"], "")),
        f"{' for' if here['state'] == 'running' else ', up for'} {up}, master is process {here['pid']}",
        " in the background" if here["background"] else "",
    )
    folder = Text(f"run directory {plain(here['run_directory'])}", "bright_black")
    troubles = _components_in_trouble(here.get("components") or ())
    return Group(title, folder, *_bell(here.get("bell")), *_reloads(here["reloads"]), slots_table(here, now), *troubles)


def _bell(bell: Mapping[str, Any] | None) -> Iterator[Text]:
    """Whether the doorbell works, and why not."""
    if bell is None:
        return
    where = f", at {bell['address']}" if bell["address"] else ""
    if bell["works"]:
        yield Text.assemble("doorbell ", ("works", "green"), f" by {bell['way']}{where}")
    else:
        yield Text.assemble("doorbell ", ("does not work", "yellow"), f"{where}: {first_line(bell['reason'])}")


def _components_in_trouble(components: Sequence[Mapping[str, Any]]) -> Iterator[Text]:
    """Those of the agent that fail, or have failed lately: it goes on without them."""
    for one in components:
        if one["failures"]:
            failed = f" of the agent has failed {many(one['failures'], 'time')} in a row: "
            yield Text.assemble(("component ", ""), (plain(one["name"]), "bold"), failed, first_line(one["last_error"]))


def _reloads(reloads: Sequence[Mapping[str, Any]]) -> Iterator[Text]:
    """The one that goes on, and the last one if something was left as it was."""
    if reloads and reloads[-1]["progress"] == "abandoned":
        yield Text.assemble(("the last reload was abandoned: ", "red"), first_line(reloads[-1]["error"]))
    for one in reloads:
        if one["progress"] in {"waiting", "running"}:
            kinds = ", ".join(f"{plain(kind)} {first_line(how)}" for kind, how in one["kinds"].items())
            yield Text.assemble((f"reload {one['progress']}", "cyan"), f": {kinds}" if kinds else "")


def slots_table(here: Mapping[str, Any], now: datetime) -> RenderableType:
    """A row for each slot."""
    return _Slots(here["slots"], now)


class _Slots:
    """The notes are beside the figures in a wide terminal, and below them in a narrow one."""

    def __init__(self, slots: Sequence[Mapping[str, Any]], now: datetime) -> None:
        self._slots = slots
        self._now = now

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it as wide as there is room."""
        rows = [_figures(slot, self._now) for slot in self._slots]
        notes = ["; ".join(_notes(slot, self._now)) for slot in self._slots]
        if options.max_width >= NOTES_NEED:
            yield table(_WITH_NOTES, [[*row, Text(note)] for row, note in zip(rows, notes, strict=True)])
            return
        yield table(_FIGURES, rows)
        for slot, note in zip(self._slots, notes, strict=True):
            if note:
                yield Padding(Text.assemble((f"{plain(slot['name'])}: ", "bold"), note), (0, 0, 0, GAP))


def _figures(slot: Mapping[str, Any], now: datetime) -> list[Text]:
    since = slot["started_at"]
    age = UNKNOWN if since is None else short_span((now - datetime.fromisoformat(since)).total_seconds())
    sample, vitals = slot["sample"] or {}, slot["vitals"]
    return [
        Text(plain(slot["name"])),
        Text(slot["state"].lower(), STATES.get(slot["state"], "")),
        Text(str(slot["generation"])),
        Text(str(slot["pid"] or UNKNOWN)),
        Text(age),
        Text(str(slot["restarts"]), "yellow" if slot["restarts"] else ""),
        Text(_memory(sample.get("memory"))),
        Text(_share(sample.get("cpu"))),
        _lag(vitals, _silence(slot)),
        Text(UNKNOWN if vitals is None or vitals.get("in_flight") is None else str(vitals["in_flight"])),
    ]


def _memory(size: int | None) -> str:
    return UNKNOWN if size is None else format_size(size)


def _share(cpu: float | None) -> str:
    return UNKNOWN if cpu is None else f"{100 * cpu:.0f} %"


def _silence(slot: Mapping[str, Any]) -> float | None:
    """Seconds for which its process has said nothing, if they are many; an earlier version of a master tells none."""
    silent_for = slot.get("silent_for")
    return silent_for if silent_for is not None and silent_for >= SILENT else None


def _lag(vitals: Mapping[str, Any] | None, silent_for: float | None) -> Text:
    if silent_for is not None:
        return Text(f"silent {short_span(silent_for)}", "bold red")
    if vitals is None:
        return Text(UNKNOWN)
    lag = vitals.get("lag")
    if lag is None:
        return Text("blocked", "bold red")
    if lag < LATE:
        return Text(f"{1000 * lag:.0f} ms")
    return Text(f"{lag:.1f} s", "yellow")


def _notes(slot: Mapping[str, Any], now: datetime) -> Iterator[str]:
    """What goes on in a slot, else how its last process ended."""
    if (silent_for := _silence(slot)) is not None:
        yield f"has told its master nothing for {span(silent_for)}: it is stopped, or its machine has too much to do"
    if slot["replacing"]:
        yield first_line(str(slot["replacing"]))
    for leaving in slot["leaving"]:
        age = short_span((now - datetime.fromisoformat(leaving["started_at"])).total_seconds())
        why = f": {first_line(leaving['reason'])}" if leaving.get("reason") else ""
        yield f"process {leaving['pid']} of generation {leaving['generation']} is leaving, {age} old{why}"
    if error := slot["error"] or (slot["last_cause"] or {}).get("text"):
        yield first_line(str(error))
