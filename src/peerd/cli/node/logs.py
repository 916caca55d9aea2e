"""``peerd logs``."""

from __future__ import annotations

import json
import re
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text
from typer import Argument, Option

from peerd.cli.command import RunDirectoryOption, command, new_app
from peerd.cli.context import CommandContext
from peerd.cli.errors import EXIT_USAGE, CommandError
from peerd.cli.node.log_reader import LineFilter, LogFollower, end_of_lines, last_lines
from peerd.cli.output.formatting import sanitize
from peerd.cli.tasks.log_lines import render_line
from peerd.config.problems import suggest_similar
from peerd.supervision import control_client

app = new_app()

POLL_INTERVAL = 0.2


@command(app)
def logs(
    context: CommandContext,
    slots: Annotated[
        list[str] | None, Argument(metavar="SLOT", help="Only these slots (video-1) or kinds (video).")
    ] = None,
    follow: Annotated[bool, Option("--follow", "-f", help="Print new lines until Ctrl-C.")] = False,
    lines: Annotated[int, Option("--lines", "-n", min=0, metavar="LINES", help="How many of the last.")] = 20,
    search: Annotated[str | None, Option(metavar="TEXT", help="Search the log lines of all tasks.")] = None,
    since: Annotated[str, Option(metavar="DURATION", help="How far back to search.")] = "1d",
    after: Annotated[str | None, Option(metavar="CURSOR", help="Go on with a search that has ended there.")] = None,
    run_directory: RunDirectoryOption = None,
) -> None:
    """Show the end of this node's log, and follow it; or search what the handlers of all nodes have logged.

    peerd logs --search "no space left" --since 1h

    A node in the background has a log file; any other has one if logging.file is set. Rotated files are read too when
    the current one has too few lines, and rotations are followed. Lines without a process name belong to the entry
    above them.
    """
    if search is not None:
        _search(context, search, since, after, lines)
        return
    context.keep_to_this_machine()
    names = slots or []
    path = _log_file(context, run_directory)
    end = end_of_lines(path)
    known = _known_kinds(context, run_directory) if names else set()
    for name in names:
        _require_known(name, known, path, end)
    for line in last_lines(path, lines, LineFilter(names), end):
        _print_line(context, line)
    if follow:
        _follow(context, path, end, LineFilter(names))


def _search(context: CommandContext, text: str, since: str, after: str | None, most: int) -> None:
    found = context.client.tasks.search_logs(text, since=since, after=after, limit=max(1, most))
    rows = [
        Text.assemble((f"{one.line.at:%m-%d} task {one.task_id} ", "bold"), render_line(one.line))
        for one in found.items
    ]
    context.print_result(found, *(rows or [Text("no line has this text")]))
    if found.searched_to is not None and not context.as_json:
        hint = f"  searched back to {found.searched_to:%F %T} UTC; to go on: --after {found.next}"
        context.out.print(Text(hint, "bright_black"), soft_wrap=True)


def _log_file(context: CommandContext, run_directory: Path | None) -> Path:
    """The log of the running node; without one, the configured log."""
    try:
        node_status = control_client.status(run_directory or context.settings.node.run_directory)
    except control_client.MasterNotRunning:
        path = run_directory / "peerd.log" if run_directory else context.settings.log_file
    else:
        if node_status["log_file"] is None:
            raise CommandError(
                f"this node has no log file: master {node_status['pid']} writes to its stderr",
                "see its terminal, or journalctl, or set [logging] file; peerd start always writes a log file",
            )
        path = Path(node_status["log_file"])
    if not path.exists():
        raise CommandError(f"there is no log {path}", "peerd start writes one")
    return path


def _require_known(name: str, known: set[str], path: Path, end: int) -> None:
    """Refuse a name that is neither a known kind, nor a slot of one, nor in this log."""
    if {name, _kind_of(name)} & known or last_lines(path, 1, LineFilter([name]), end):
        return
    existing = f"; there are: {', '.join(sorted(known))}" if known else ""
    message = f"no line of this log is of {name}{existing}"
    raise CommandError(message, suggest_similar(name, known), status=EXIT_USAGE)


def _known_kinds(context: CommandContext, run_directory: Path | None) -> set[str]:
    """The kinds that run, or else those that are configured."""
    try:
        node_status = control_client.status(run_directory or context.settings.node.run_directory)
        return {_kind_of(slot["name"]) for slot in node_status["slots"]}
    except control_client.MasterNotRunning:
        if run_directory is not None:  # the configuration may be unreadable
            return set()
        settings = context.settings
        return {"agent", "manager", *settings.workers, *settings.web, *settings.gateway, *settings.commands}


def _kind_of(slot: str) -> str:
    return re.sub(r"-\d+$", "", slot)


def _follow(context: CommandContext, path: Path, begin: int, line_filter: LineFilter) -> None:
    with closing(LogFollower(path, begin)) as follower:
        while True:
            for line in follower.read(time.monotonic()):
                if line_filter(line):
                    _print_line(context, line)
            time.sleep(POLL_INTERVAL)


def _print_line(context: CommandContext, line: str) -> None:
    """Print a line; as JSON its own object, or an object with the line as text."""
    if not context.as_json:
        typer.echo(sanitize(line))
        return
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    context.print_json_line(entry if isinstance(entry, dict) else {"text": line})
