"""The commands ``peerd schedules …``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import msgspec
from rich.text import Text
from typer import Argument, Option

from peerd.cli.arguments import parse_duration_option, parse_json
from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.errors import CommandError, UsageError
from peerd.cli.following import poll
from peerd.cli.output import (
    UNKNOWN,
    AlignedTable,
    Column,
    Fields,
    first_line,
    format_age,
    format_elapsed,
    format_timestamp,
    make_key_value_table,
    right,
    sanitize,
    wide,
)
from peerd.domain.schedule import RunStatus, Schedule
from peerd.domain.units import format_duration
from peerd.operate.new_schedule import ScheduleFields
from peerd.operate.schedules import ScheduleNode, ScheduleState
from peerd.store.schedule_runs import ScheduleRun


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions:
    """The fields of ``[schedules.NAME]``."""

    queue: Annotated[str, Option("--queue", "-q", metavar="QUEUE", help="The queue of the task.")]
    task: Annotated[str | None, Option(metavar="HANDLER", help="The handler of its tasks.")] = None
    body: Annotated[str | None, Option(metavar="JSON", help="The arguments of its handler.")] = None
    limit_key: Annotated[str | None, Option(metavar="KEY", help="Its key for limits.")] = None
    type: Annotated[str | None, Option(metavar="TYPE", help="cluster (the default), or worker: on each node.")] = None
    interval: Annotated[str | None, Option(metavar="DURATION", help="Between two ticks, such as 10m.")] = None
    cron: Annotated[str | None, Option(metavar="CRON", help="Five fields, or six with the seconds first.")] = None
    timezone: Annotated[str | None, Option(metavar="ZONE", help="Of --cron, such as Europe/Berlin.")] = None
    immediate: Annotated[bool, Option("--immediate", help="Tick at the start of the cluster, too.")] = False
    overlap: Annotated[str | None, Option(metavar="RULE", help="skip, queue or allow.")] = None
    misfire: Annotated[str | None, Option(metavar="RULE", help="skip or run_once.")] = None
    misfire_grace: Annotated[str | None, Option(metavar="DURATION", help="How late a tick may be.")] = None
    jitter: Annotated[str | None, Option(metavar="DURATION", help="Spread ticks over this time.")] = None
    disabled: Annotated[bool, Option("--disabled", help="Do not tick until it is created anew.")] = False

    def given(self) -> ScheduleFields:
        """The fields that were given."""
        names = ScheduleFields.__annotations__
        given: Any = {name: value for name in names if (value := getattr(self, name, None)) is not None}
        if self.body is not None:
            given["body"] = parse_json(f"--body {self.body}", self.body)
        fields: ScheduleFields = given | {"enabled": not self.disabled}
        return fields


# ---------------------------------------------------------------- the commands


app = new_app("List, show, create, delete, run, enable and disable schedules.")

ScheduleNames = Annotated[list[str], Argument(metavar="SCHEDULE", help="Names of schedules.")]
ScheduleName = Annotated[str, Argument(metavar="SCHEDULE", help="The name of the schedule.")]
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
    """List all schedules: when each runs next, and the outcome of its latest run."""
    found = context.client.schedules.list()
    fields: Fields[ScheduleState] = (
        ("schedule", lambda one: one.name),
        ("state", _render_state),
        ("type", lambda one: one.type),
        (Column("when", max_width=40), lambda one: _describe_trigger(one.definition)),
        (right("next"), lambda one: format_age(one.next_at, context.now) if _ticks(one) else UNKNOWN),
        (right("last"), lambda one: format_age(one.last_run.tick_at, context.now) if one.last_run else UNKNOWN),
        ("outcome", lambda one: _render_run_status(one.last_run.status) if one.last_run else UNKNOWN),
        (wide("runs"), lambda one: _describe_action(one.definition)),
    )
    context.print_table(found, fields, found, "no node has had a schedule yet")


@command(app)
def show(context: CommandContext, name: ScheduleName) -> None:
    """Show a schedule, its nodes, and its latest runs."""
    state = context.client.schedules.get(name)
    runs = context.client.schedules.runs(name, limit=10)
    facts, nodes = make_key_value_table(_details(state, context.now)), _nodes_table(state, context.now)
    latest = [AlignedTable(_run_fields(context), runs)] if runs else []
    context.print_result({"schedule": state, "runs": runs}, facts, nodes, *latest)


@command(app)
def runs(
    context: CommandContext,
    name: Annotated[str | None, Argument(metavar="SCHEDULE", help="Only of this schedule.")] = None,
    limit: Annotated[int, Option("--limit", help="At most this many.")] = 20,
) -> None:
    """List the newest runs of a schedule, or of all."""
    found = context.client.schedules.runs(name, limit=limit)
    context.print_table(found, _run_fields(context), found, "nothing has run yet")


@command(app)
def run(
    context: CommandContext,
    name: ScheduleName,
    args: Annotated[list[str] | None, Argument(metavar="JSON", help="Arguments instead of the schedule's.")] = None,
    wait: Annotated[bool, Option("--wait/--no-wait", help="Wait until it has ended.")] = True,
    timeout: Annotated[str | None, Option(metavar="DURATION", help="Wait at most this long.")] = None,
) -> None:
    """Run a schedule now, on any of its nodes; also a disabled one."""
    seconds = None if timeout is None else parse_duration_option("--timeout", timeout)
    requested = context.client.schedules.run(name, *[_parse_argument(one) for one in args or ()])
    if not wait:
        context.print_result(requested, f"run {requested.id} of {name} is requested")
        return
    ended = _wait_for_runs(context, requested, seconds)
    failed = [one for one in ended if one.status not in SUCCESS_STATUSES]
    slots = [one.slot for one in failed if one.slot]
    result = msgspec.structs.asdict([*failed, *ended][0]) | {"failed": slots, "processes": ended}
    context.print_result(result, *_describe_runs(ended, failed), failed=bool(failed))


@command(app)
def create(
    context: CommandContext,
    name: Annotated[str, Argument(metavar="SCHEDULE", help="A new name.")],
    fields: ScheduleOptions,
) -> None:
    """Create a schedule that enqueues a task, on all nodes; it survives restarts.

    peerd schedules create tidy --queue jobs --task tidy --body '{"depth": 3}' --cron '0 3 * * *'
    """
    context.client.schedules.create(name, **fields.given())
    context.print_result({"created": name}, f"{name} is created; the nodes have it within seconds")


@command(app)
def delete(context: CommandContext, names: ScheduleNames) -> None:
    """Delete schedules that were created at run time."""
    context.act_on_each(names, context.client.schedules.delete, "deleted", "is deleted")


@command(app)
def enable(context: CommandContext, names: ScheduleNames) -> None:
    """Enable disabled schedules; missed runs are not made up for."""
    for name in names:
        context.client.schedules.enable(name)
    states = [context.client.schedules.get(name) for name in names]
    off = [state.name for state in states if state.definition is not None and not state.definition.enabled]
    lines = [Text(f"{sanitize(name)} is enabled") for name in names if name not in off]
    lines += [Text(f"{sanitize(name)} is off in peerd.toml: enabled = false", "yellow") for name in off]
    context.print_result({"enabled": names, "off": off}, *lines)


@command(app)
def disable(context: CommandContext, names: ScheduleNames) -> None:
    """Disable schedules in the whole cluster; peerd schedules run still runs them."""
    context.act_on_each(names, context.client.schedules.disable, "disabled", "is disabled")


def _describe_trigger(schedule: Schedule | None) -> str:
    if schedule is None:
        return "?"
    start = "at the start" if schedule.immediate else ""
    if schedule.interval is not None:
        ticks = f"every {format_duration(schedule.interval)}"
    elif schedule.cron is not None:
        ticks = f"{schedule.cron} {schedule.timezone}"
    else:
        ticks = "" if start else "as its class computes"
    return ", ".join(filter(None, [ticks, start]))


def _describe_action(schedule: Schedule | None) -> str:
    if schedule is None:
        return "?"
    return schedule.run or f"{f'task {schedule.task}' if schedule.task else 'a task'} in {schedule.queue}"


def _render_state(state: ScheduleState) -> Text:
    return Text(state.state, SCHEDULE_STATE_STYLES[state.state])


def _ticks(state: ScheduleState) -> bool:
    return state.state in ("on", "error") and state.next_at is not None


def _nodes_table(state: ScheduleState, now: datetime) -> AlignedTable:
    fields: Fields[ScheduleNode] = (
        ("node", lambda node: node.node),
        (right("next"), lambda node: UNKNOWN if node.next_at is None else format_age(node.next_at, now)),
        ("definition", lambda node: "as the cluster's" if node.is_own else Text("differs", "yellow")),
        (wide("error"), lambda node: Text(first_line(node.error), "red")),
    )
    return AlignedTable(fields, state.nodes)


def _run_fields(context: CommandContext) -> Fields[ScheduleRun]:
    return (
        (right("run"), lambda run: str(run.id)),
        ("schedule", lambda run: run.schedule),
        (right("tick"), lambda run: format_age(run.tick_at, context.now)),
        ("by", lambda run: run.origin),
        ("status", lambda run: _render_run_status(run.status)),
        (right("took"), _format_run_time),
        ("process", lambda run: run.slot or UNKNOWN),
        (right("task"), lambda run: str(run.task_id or UNKNOWN)),
        (wide("error"), lambda run: first_line(run.error)),
    )


def _format_run_time(run: ScheduleRun) -> str:
    if run.started_at is None or run.finished_at is None:
        return UNKNOWN
    return format_duration(round((run.finished_at - run.started_at).total_seconds(), 2))


def _render_run_status(status: RunStatus) -> Text:
    return Text(status, RUN_STATUS_STYLES.get(status, "bold red"))


def _details(state: ScheduleState, now: datetime) -> Iterator[tuple[str, Text | str | None]]:
    yield "schedule", state.name
    yield "state", _render_state(state)
    yield "type", state.type
    yield "from", "the database" if state.is_stored else "peerd.toml, or code"
    yield "runs", _describe_action(state.definition)
    yield "when", _describe_trigger(state.definition)
    yield "next", format_timestamp(state.next_at, now)
    yield "last tick", format_timestamp(state.last_at, now)
    schedule = state.definition
    if schedule is None:
        return
    yield "overlap", schedule.overlap
    yield "misfire", f"{schedule.misfire}, after {format_elapsed(schedule.misfire_grace)}"
    yield "args", json.dumps(schedule.args) if schedule.args else None
    yield "workers", ", ".join(schedule.workers or ()) or None
    yield "body", str(schedule.body) if schedule.body else None
    yield "jitter", format_duration(schedule.jitter) if schedule.jitter else None
    yield "timeout", format_duration(schedule.timeout) if schedule.timeout else None


def _wait_for_runs(context: CommandContext, run: ScheduleRun, timeout: float | None) -> list[ScheduleRun]:
    runs = [run]
    for runs in poll(lambda: context.client.schedules.get_runs(run.id), timeout):
        if not any(one.is_open for one in runs):
            return runs
    state = "no node has taken it" if runs[0].status is RunStatus.WAITING else "it is still running"
    remedy = f"see its end with `peerd schedules runs {run.schedule}`"
    raise CommandError(f"run {run.id} has not ended within {format_duration(timeout or 0.0)}: {state}", remedy)


def _describe_runs(runs: Sequence[ScheduleRun], failed: Sequence[ScheduleRun]) -> list[Text]:
    """The outcome of a run; of one that runs in every process, the failures by process."""
    if len(runs) == 1:
        return [_describe_run(runs[0])]
    name = f"run {runs[0].id} of {sanitize(runs[0].schedule)}: "
    if not failed:
        return [Text.assemble(name, _render_run_status(runs[0].status), f" in {len(runs)} processes")]
    return [Text(f"{name}failed in {len(failed)} of {len(runs)} processes"), *map(_describe_run, failed)]


def _describe_run(run: ScheduleRun) -> Text:
    process = f" in {sanitize(run.slot)}" if run.slot else ""
    task = f": task {run.task_id}" if run.task_id else ""
    error = f": {first_line(run.error)}" if run.error else ""
    return Text.assemble(
        f"run {run.id} of {sanitize(run.schedule)}: ", _render_run_status(run.status), f"{process}{task}{error}"
    )


def _parse_argument(text: str) -> object:
    """JSON; text that does not begin as JSON is taken as it is."""
    try:
        return parse_json(f"the argument {text}", text)
    except UsageError:
        if text.lstrip().startswith(("{", "[", '"')):
            raise
        return text
