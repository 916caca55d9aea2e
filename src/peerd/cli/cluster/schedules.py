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
from peerd.cli.context import CommandContext
from peerd.cli.errors import EXIT_USAGE, CommandError
from peerd.cli.output.formatting import first_line, format_age, format_elapsed, format_timestamp, sanitize
from peerd.cli.output.tables import AlignedTable, Column, make_key_value_table, table
from peerd.domain.duration import format_duration, parse_duration
from peerd.domain.schedule import RunStatus, Schedule
from peerd.operate.schedules import ScheduleState
from peerd.store.schedule_runs import ScheduleRun

app = new_app(__doc__, no_args_is_help=True)

ScheduleNames = Annotated[list[str], typer.Argument(metavar="SCHEDULE", help="Names of schedules.", show_default=False)]
ScheduleName = Annotated[str, typer.Argument(metavar="SCHEDULE", help="Its name.", show_default=False)]
POLL_INTERVAL = 0.2
"""Seconds."""
SCHEDULE_STATE_STYLES = {
    "on": "green",
    "disabled": "yellow",
    "off": "bright_black",
    "error": "bold red",
    "nowhere": "bright_black",
}
RUN_STATUS_STYLES = {
    RunStatus.WAITING: "cyan",
    RunStatus.RUNNING: "bold yellow",
    RunStatus.DONE: "green",
    RunStatus.ENQUEUED: "green",
    RunStatus.SKIPPED: "bright_black",
    RunStatus.CANCELED: "bright_black",
}
SUCCESS_STATUSES = (RunStatus.DONE, RunStatus.ENQUEUED)


@command(app, "list")
def list_schedules(context: CommandContext) -> None:
    """List all schedules: when each ticks, and what became of its latest run."""
    schedules = context.client.schedules.list()
    if not schedules:
        context.answer([], Text("no node has had a schedule yet"))
    else:
        context.answer(schedules, lambda: schedules_table(schedules, context.client.now()))


@command(app)
def show(context: CommandContext, name: ScheduleName) -> None:
    """Show a schedule, the nodes that have it, and its latest runs."""
    state = context.client.schedules.get(name)
    runs = context.client.schedules.runs(name, limit=10)
    now = context.client.now()
    people: list[RenderableType] = [make_key_value_table(_details(state, now)), schedule_nodes_table(state, now)]
    if runs:
        people.append(runs_table(runs, now))
    context.answer({"schedule": state, "runs": runs}, *people)


@command(app)
def runs(
    context: CommandContext,
    name: Annotated[str | None, typer.Argument(metavar="SCHEDULE", help="Its name; without it all.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="How many.")] = 20,
) -> None:
    """List the newest runs of a schedule, or of all."""
    found = context.client.schedules.runs(name, limit=limit)
    if not found:
        context.answer([], Text("nothing has run yet"))
    else:
        context.answer(found, lambda: runs_table(found, context.client.now()))


@command(app)
def run(
    context: CommandContext,
    name: ScheduleName,
    args: Annotated[
        list[str] | None, typer.Argument(metavar="[JSON]…", help="Arguments instead of its own.", show_default=False)
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for its end.")] = True,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION", help="Wait no longer.", show_default=False)
    ] = None,
) -> None:
    """Run a schedule now, on whichever node takes it; also one that is disabled."""
    requested = context.client.schedules.run(name, *[_parse_argument(one) for one in args or ()])
    if not wait:
        context.answer(requested, Text(f"run {requested.id} of {sanitize(name)} is asked for"))
        return
    ended = _wait_for_runs(context, requested, timeout)
    failed = [one for one in ended if one.status not in SUCCESS_STATUSES]
    slots = [one.slot for one in failed if one.slot]
    result = msgspec.structs.asdict([*failed, *ended][0]) | {"failed": slots, "processes": ended}
    context.answer(result, *_describe_runs(ended, failed))
    if failed:
        raise typer.Exit(1)


@command(app)
def enable(context: CommandContext, names: ScheduleNames) -> None:
    """Let schedules tick again; what has passed meanwhile is not made up for."""
    for name in names:
        context.client.schedules.enable(name)
    states = [context.client.schedules.get(name) for name in names]
    off = [state.name for state in states if state.definition is not None and not state.definition.enabled]
    lines = [Text(f"{sanitize(name)} ticks again") for name in names if name not in off]
    lines += [Text(f"{sanitize(name)} is off in peerd.toml: enabled = false", "yellow") for name in off]
    context.answer({"enabled": names, "off": off}, *lines)


@command(app)
def disable(context: CommandContext, names: ScheduleNames) -> None:
    """Let schedules tick nowhere in the cluster; they may be run by hand."""
    for name in names:
        context.client.schedules.disable(name)
    context.answer({"disabled": names}, *[Text(f"{sanitize(name)} ticks no more") for name in names])


def describe_trigger(schedule: Schedule | None) -> str:
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


def describe_action(schedule: Schedule | None) -> str:
    """What a schedule runs, for people."""
    if schedule is None:
        return "?"
    return schedule.run or f"task {schedule.task} in {schedule.queue}".replace("task  ", "a task ")


def schedules_table(schedules: Sequence[ScheduleState], now: datetime) -> AlignedTable:
    """Schedules for people."""
    columns = (
        Column("schedule"),
        Column("state"),
        Column("type"),
        Column("when", max_width=40),
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
        Text(sanitize(state.name)),
        Text(state.state, SCHEDULE_STATE_STYLES[state.state]),
        Text(sanitize(state.type)),
        Text(sanitize(describe_trigger(state.definition))),
        Text(format_age(state.next_at, now) if ticks else "–"),
        Text(format_age(last.tick_at, now) if last else "–"),
        _render_run_status(last.status) if last else Text("–"),
        Text(sanitize(describe_action(state.definition))),
    ]


def schedule_nodes_table(state: ScheduleState, now: datetime) -> AlignedTable:
    """The nodes that have a schedule, for people."""
    columns = (Column("node"), Column("next", right=True), Column("definition"), Column("error", wide=True))
    rows = [
        [
            Text(sanitize(node.node)),
            Text(format_age(node.next_at, now) if node.next_at is not None else "–"),
            Text("as the cluster's" if node.is_own else "another one", "" if node.is_own else "yellow"),
            Text(first_line(node.error), "red"),
        ]
        for node in state.nodes
    ]
    return table(columns, rows)


def runs_table(runs: Sequence[ScheduleRun], now: datetime) -> AlignedTable:
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


def _run_row(run: ScheduleRun, now: datetime) -> list[Text]:
    return [
        Text(str(run.id)),
        Text(sanitize(run.schedule)),
        Text(format_age(run.tick_at, now)),
        Text(sanitize(run.origin)),
        _render_run_status(run.status),
        Text(_format_duration_of(run)),
        Text(sanitize(run.slot or "–")),
        Text(str(run.task_id or "–")),
        Text(first_line(run.error)),
    ]


def _format_duration_of(run: ScheduleRun) -> str:
    if run.started_at is None or run.finished_at is None:
        return "–"
    return format_duration(round((run.finished_at - run.started_at).total_seconds(), 2))


def _render_run_status(status: RunStatus) -> Text:
    return Text(status, RUN_STATUS_STYLES.get(status, "bold red"))


def _details(state: ScheduleState, now: datetime) -> list[tuple[str, Text | str]]:
    found: list[tuple[str, Text | str]] = [
        ("schedule", sanitize(state.name)),
        ("state", Text(state.state, SCHEDULE_STATE_STYLES[state.state])),
        ("type", sanitize(state.type)),
        ("runs", sanitize(describe_action(state.definition))),
        ("when", sanitize(describe_trigger(state.definition))),
        ("next", format_timestamp(state.next_at, now)),
        ("last tick", format_timestamp(state.last_at, now)),
    ]
    if state.definition is not None:
        found += [(name, sanitize(f"{value}")) for name, value in _optional_details(state.definition)]
    return found


def _optional_details(schedule: Schedule) -> list[tuple[str, object]]:
    more = {
        "overlap": schedule.overlap,
        "misfire": f"{schedule.misfire}, after {format_elapsed(schedule.misfire_grace)}",
    }
    rest: dict[str, Any] = {
        "args": json.dumps(schedule.args) if schedule.args else None,
        "workers": ", ".join(schedule.workers or ()),
        "body": schedule.body,
        "jitter": format_duration(schedule.jitter) if schedule.jitter else None,
        "timeout": format_duration(schedule.timeout) if schedule.timeout else None,
    }
    return [*more.items(), *[(name, value) for name, value in rest.items() if value]]


def _wait_for_runs(context: CommandContext, run: ScheduleRun, timeout: str | None) -> list[ScheduleRun]:
    try:
        deadline = None if timeout is None else time.monotonic() + parse_duration(timeout)
    except ValueError as error:
        raise CommandError(f"--timeout: {error}", status=EXIT_USAGE) from None
    runs = [run]
    while any(one.is_open for one in runs):
        if deadline is not None and time.monotonic() > deadline:
            state = "no node has taken it" if runs[0].status is RunStatus.WAITING else "it goes on"
            remedy = f"look again with `peerd schedules runs {run.schedule}`"
            raise CommandError(f"run {run.id} has not ended within {timeout}: {state}", remedy)
        time.sleep(POLL_INTERVAL)
        runs = context.client.schedules.get_runs(run.id)
    return runs


def _describe_runs(runs: Sequence[ScheduleRun], failed: Sequence[ScheduleRun]) -> list[Text]:
    """What became of a run: in its process, or in all processes, of which each that failed is named."""
    if len(runs) == 1:
        return [_describe_run(runs[0])]
    name = f"run {runs[0].id} of {sanitize(runs[0].schedule)}: "
    if not failed:
        return [Text.assemble(name, _render_run_status(runs[0].status), f" in {len(runs)} processes")]
    return [Text(f"{name}failed in {len(failed)} of {len(runs)} processes"), *map(_describe_run, failed)]


def _describe_run(run: ScheduleRun) -> Text:
    where = f" in {sanitize(run.slot)}" if run.slot else ""
    task = f": task {run.task_id}" if run.task_id else ""
    error = f": {first_line(run.error)}" if run.error else ""
    return Text.assemble(
        f"run {run.id} of {sanitize(run.schedule)}: ", _render_run_status(run.status), f"{where}{task}{error}"
    )


def _parse_argument(text: str) -> object:
    """An argument: JSON, or else the text as it stands.

    Raises:
        Failure: it begins as JSON does, and is none.
    """
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        if text.lstrip().startswith(("{", "[", '"')):
            remedy = """quote it as the shell needs it: '{"source": "a.mp4"}'"""
            raise CommandError(f"the argument {text} is not JSON: {error}", remedy, status=EXIT_USAGE) from None
        return text
