"""List, show, run, enable and disable schedules."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer
from rich.console import RenderableType
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import Desk
from peerd.cli.errors import WRONG_USAGE, Failure
from peerd.cli.output.formatting import ago, first_line, full, plain, span
from peerd.cli.output.tables import Column, Rows, facts, table
from peerd.domain.duration import format_duration, parse_duration
from peerd.domain.schedule import RunStatus, Schedule
from peerd.operate.schedules import ScheduleState
from peerd.store.schedule_runs import Run

app = new_app(__doc__, no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="SCHEDULE", help="Names of schedules.", show_default=False)]
Name = Annotated[str, typer.Argument(metavar="SCHEDULE", help="Its name.", show_default=False)]
LOOK_EVERY = 0.2
"""Seconds."""
STATES = {"on": "green", "disabled": "yellow", "off": "bright_black", "error": "bold red", "nowhere": "bright_black"}
STYLES = {
    RunStatus.WAITING: "cyan",
    RunStatus.RUNNING: "bold yellow",
    RunStatus.DONE: "green",
    RunStatus.ENQUEUED: "green",
    RunStatus.SKIPPED: "bright_black",
    RunStatus.CANCELED: "bright_black",
}
GOOD = (RunStatus.DONE, RunStatus.ENQUEUED)


@command(app, "list")
def list_schedules(desk: Desk) -> None:
    """List all schedules: when each ticks, and what became of its latest run."""
    schedules = desk.client.schedules.list()
    if not schedules:
        desk.answer([], Text("no node has had a schedule yet"))
    else:
        desk.answer(schedules, lambda: schedules_table(schedules, desk.client.now()))


@command(app)
def show(desk: Desk, name: Name) -> None:
    """Show a schedule, the nodes that have it, and its latest runs."""
    state = desk.client.schedules.get(name)
    runs = desk.client.schedules.runs(name, limit=10)
    now = desk.client.now()
    people: list[RenderableType] = [facts(_facts(state, now)), nodes_table(state, now)]
    if runs:
        people.append(runs_table(runs, now))
    desk.answer({"schedule": state, "runs": runs}, *people)


@command(app)
def runs(
    desk: Desk,
    name: Annotated[str | None, typer.Argument(metavar="SCHEDULE", help="Its name; without it all.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="How many.")] = 20,
) -> None:
    """List the newest runs of a schedule, or of all."""
    found = desk.client.schedules.runs(name, limit=limit)
    if not found:
        desk.answer([], Text("nothing has run yet"))
    else:
        desk.answer(found, lambda: runs_table(found, desk.client.now()))


@command(app)
def run(
    desk: Desk,
    name: Name,
    args: Annotated[
        list[str] | None, typer.Argument(metavar="[JSON]…", help="Arguments instead of its own.", show_default=False)
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for its end.")] = True,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION", help="Wait no longer.", show_default=False)
    ] = None,
) -> None:
    """Run a schedule now, on whichever node takes it; also one that is disabled."""
    requested = desk.client.schedules.run(name, *[_value(one) for one in args or ()])
    if not wait:
        desk.answer(requested, Text(f"run {requested.id} of {plain(name)} is asked for"))
        return
    ended = _wait(desk, requested, timeout)
    failed = [one for one in ended if one.status not in GOOD]
    slots = [one.slot for one in failed if one.slot]
    result = msgspec.structs.asdict([*failed, *ended][0]) | {"failed": slots, "processes": ended}
    desk.answer(result, *_sentences(ended, failed))
    if failed:
        raise typer.Exit(1)


@command(app)
def enable(desk: Desk, names: Names) -> None:
    """Let schedules tick again; what has passed meanwhile is not made up for."""
    for name in names:
        desk.client.schedules.enable(name)
    states = [desk.client.schedules.get(name) for name in names]
    off = [state.name for state in states if state.definition is not None and not state.definition.enabled]
    said = [Text(f"{plain(name)} ticks again") for name in names if name not in off]
    said += [Text(f"{plain(name)} is off in peerd.toml: enabled = false", "yellow") for name in off]
    desk.answer({"enabled": names, "off": off}, *said)


@command(app)
def disable(desk: Desk, names: Names) -> None:
    """Let schedules tick nowhere in the cluster; they may be run by hand."""
    for name in names:
        desk.client.schedules.disable(name)
    desk.answer({"disabled": names}, *[Text(f"{plain(name)} ticks no more") for name in names])


def when(schedule: Schedule | None) -> str:
    """When a schedule ticks, for people."""
    if schedule is None:
        return "?"
    start = "at the start" if schedule.immediate else ""
    if schedule.interval is not None:
        ticks = f"every {format_duration(schedule.interval)}"
    elif schedule.cron is not None:
        ticks = f"{schedule.cron} {schedule.timezone}"
    else:
        ticks = "" if start else "as its class says"
    return ", ".join(filter(None, [ticks, start]))


def what(schedule: Schedule | None) -> str:
    """What a schedule runs, for people."""
    if schedule is None:
        return "?"
    return schedule.run or f"task {schedule.task} in {schedule.queue}".replace("task  ", "a task ")


def schedules_table(schedules: Sequence[ScheduleState], now: datetime) -> Rows:
    """Schedules for people."""
    columns = (
        Column("schedule"),
        Column("state"),
        Column("type"),
        Column("when", most=40),
        Column("next", right=True),
        Column("last", right=True),
        Column("outcome"),
        Column("runs", wide=True),
    )
    return table(columns, [_schedule_row(one, now) for one in schedules])


def _schedule_row(state: ScheduleState, now: datetime) -> list[Text]:
    last = state.last_run
    ticks = state.state in ("on", "error") and state.next_at is not None
    return [
        Text(plain(state.name)),
        Text(state.state, STATES[state.state]),
        Text(plain(state.type)),
        Text(plain(when(state.definition))),
        Text(ago(state.next_at, now) if ticks else "–"),
        Text(ago(last.tick_at, now) if last else "–"),
        _status(last.status) if last else Text("–"),
        Text(plain(what(state.definition))),
    ]


def nodes_table(state: ScheduleState, now: datetime) -> Rows:
    """The nodes that have a schedule, for people."""
    columns = (Column("node"), Column("next", right=True), Column("definition"), Column("error", wide=True))
    rows = [
        [
            Text(plain(node.node)),
            Text(ago(node.next_at, now) if node.next_at is not None else "–"),
            Text("as the cluster's" if node.is_own else "another one", "" if node.is_own else "yellow"),
            Text(first_line(node.error), "red"),
        ]
        for node in state.nodes
    ]
    return table(columns, rows)


def runs_table(runs: Sequence[Run], now: datetime) -> Rows:
    """Runs for people."""
    columns = (
        Column("run", right=True),
        Column("schedule"),
        Column("tick", right=True),
        Column("by"),
        Column("status"),
        Column("took", right=True),
        Column("process"),
        Column("task", right=True),
        Column("error", wide=True),
    )
    return table(columns, [_run_row(one, now) for one in runs])


def _run_row(run: Run, now: datetime) -> list[Text]:
    return [
        Text(str(run.id)),
        Text(plain(run.schedule)),
        Text(ago(run.tick_at, now)),
        Text(plain(run.origin)),
        _status(run.status),
        Text(_took(run)),
        Text(plain(run.slot or "–")),
        Text(str(run.task_id or "–")),
        Text(first_line(run.error)),
    ]


def _took(run: Run) -> str:
    if run.started_at is None or run.finished_at is None:
        return "–"
    return format_duration(round((run.finished_at - run.started_at).total_seconds(), 2))


def _status(status: RunStatus) -> Text:
    return Text(status, STYLES.get(status, "bold red"))


def _facts(state: ScheduleState, now: datetime) -> list[tuple[str, Text | str]]:
    found: list[tuple[str, Text | str]] = [
        ("schedule", plain(state.name)),
        ("state", Text(state.state, STATES[state.state])),
        ("type", plain(state.type)),
        ("runs", plain(what(state.definition))),
        ("when", plain(when(state.definition))),
        ("next", full(state.next_at, now)),
        ("last tick", full(state.last_at, now)),
    ]
    if state.definition is not None:
        found += [(name, plain(f"{value}")) for name, value in _rest(state.definition)]
    return found


def _rest(schedule: Schedule) -> list[tuple[str, object]]:
    more = {"overlap": schedule.overlap, "misfire": f"{schedule.misfire}, after {span(schedule.misfire_grace)}"}
    rest: dict[str, Any] = {
        "args": json.dumps(schedule.args) if schedule.args else None,
        "workers": ", ".join(schedule.workers or ()),
        "body": schedule.body,
        "jitter": format_duration(schedule.jitter) if schedule.jitter else None,
        "timeout": format_duration(schedule.timeout) if schedule.timeout else None,
    }
    return [*more.items(), *[(name, value) for name, value in rest.items() if value]]


def _wait(desk: Desk, run: Run, timeout: str | None) -> list[Run]:
    try:
        deadline = None if timeout is None else time.monotonic() + parse_duration(timeout)
    except ValueError as error:
        raise Failure(f"--timeout: {error}", status=WRONG_USAGE) from None
    runs = [run]
    while any(one.is_open for one in runs):
        if deadline is not None and time.monotonic() > deadline:
            state = "no node has taken it" if runs[0].status is RunStatus.WAITING else "it goes on"
            remedy = f"look again with `peerd schedules runs {run.schedule}`"
            raise Failure(f"run {run.id} has not ended within {timeout}: {state}", remedy)
        time.sleep(LOOK_EVERY)
        runs = desk.client.schedules.get_runs(run.id)
    return runs


def _sentences(runs: Sequence[Run], failed: Sequence[Run]) -> list[Text]:
    """What became of a run: in its process, or in all processes, of which each that failed is named."""
    if len(runs) == 1:
        return [_sentence(runs[0])]
    name = f"run {runs[0].id} of {plain(runs[0].schedule)}: "
    if not failed:
        return [Text.assemble(name, _status(runs[0].status), f" in {len(runs)} processes")]
    return [Text(f"{name}failed in {len(failed)} of {len(runs)} processes"), *map(_sentence, failed)]


def _sentence(run: Run) -> Text:
    where = f" in {plain(run.slot)}" if run.slot else ""
    task = f": task {run.task_id}" if run.task_id else ""
    error = f": {first_line(run.error)}" if run.error else ""
    return Text.assemble(f"run {run.id} of {plain(run.schedule)}: ", _status(run.status), f"{where}{task}{error}")


def _value(text: str) -> object:
    """An argument: JSON, or else the text as it stands.

    Raises:
        Failure: it begins as JSON does, and is none.
    """
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        if text.lstrip().startswith(("{", "[", '"')):
            remedy = """quote it as the shell needs it: '{"source": "a.mp4"}'"""
            raise Failure(f"the argument {text} is not JSON: {error}", remedy, status=WRONG_USAGE) from None
        return text
