"""Show the log of this node, and follow it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from peerd.cli.command import command, new_app
from peerd.cli.context import CommandContext
from peerd.cli.errors import EXIT_USAGE, CommandError
from peerd.cli.node.log_reader import LineFilter, LogFollower, end_of_lines, last_lines
from peerd.cli.node.stop import RunDirectoryOption
from peerd.cli.output.formatting import sanitize
from peerd.config.reading.suggestions import suggest_similar
from peerd.supervision.control import control_client

app = new_app(__doc__)

POLL_INTERVAL = 0.2


@command(app)
def logs(
    context: CommandContext,
    slots: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SLOT", help="Only lines of these: slots (video-1) or kinds (video).", show_default=False
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is added, until Ctrl-C.", show_default=False)
    ] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, metavar="LINES", help="The last so many.")] = 20,
    run_directory: RunDirectoryOption = None,
) -> None:
    """Show the log of this node, and follow it.

    Of a node in the background, and of any other that has a [logging] file. It reads on in the rotated files where the
    present one has too few lines, and follows the log over its rotations. Lines that name no process belong to the
    entry above them.
    """
    path = _log_file(context, run_directory)
    line_filter = LineFilter(slots or [])
    end = end_of_lines(path)
    _require_known(context, slots or [], run_directory, path, end)
    for line in last_lines(path, lines, LineFilter(slots or []), end):
        _print_line(context, line)
    if follow:
        _follow(context, path, end, line_filter)


def _log_file(context: CommandContext, run_directory: Path | None) -> Path:
    """The log of the node that runs; without one, that of the last, where the configuration has it."""
    try:
        node_status = control_client.status(run_directory or context.settings.node.run_directory)
    except control_client.MasterNotRunning:
        path = run_directory / "peerd.log" if run_directory else context.settings.log_file
    else:
        if node_status["log_file"] is None:
            raise CommandError(
                f"this node has no log file: master {node_status['pid']} writes to what it was started with",
                "look at its terminal, or journalctl, or give [logging] file; peerd start has a log file always",
            )
        path = Path(node_status["log_file"])
    if not path.exists():
        raise CommandError(f"there is no log {path}", "peerd start writes one")
    return path


def _require_known(
    context: CommandContext, slots: Sequence[str], run_directory: Path | None, path: Path, end: int
) -> None:
    """Refuse a name that no slot and no kind has, nor ever had in this log.

    Raises:
        Failure: there is one.
    """
    known = _known_kinds(context, run_directory) if slots else set()
    for slot in slots:
        if {slot, re.sub(r"-\d+$", "", slot)} & known or last_lines(path, 1, LineFilter([slot]), end):
            continue
        there = f"; there are: {', '.join(sorted(known))}" if known else ""
        raise CommandError(f"no line of this log is of {slot}{there}", suggest_similar(slot, known), status=EXIT_USAGE)


def _known_kinds(context: CommandContext, run_directory: Path | None) -> set[str]:
    """The kinds of processes that run, or that the configuration has."""
    try:
        node_status = control_client.status(run_directory or context.settings.node.run_directory)
        return {re.sub(r"-\d+$", "", slot["name"]) for slot in node_status["slots"]}
    except control_client.MasterNotRunning:
        if run_directory is not None:  # then there may be no configuration that can be read
            return set()
        settings = context.settings
        return {"agent", "manager", *settings.workers, *settings.web, *settings.commands}


def _follow(context: CommandContext, path: Path, begin: int, line_filter: LineFilter) -> None:
    follower = LogFollower(path, begin)
    try:
        while True:
            for line in follower.read(time.monotonic()):
                if line_filter(line):
                    _print_line(context, line)
            time.sleep(POLL_INTERVAL)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        follower.close()


def _print_line(context: CommandContext, line: str) -> None:
    """A line; for programs an object, as it was written or with the line as its text."""
    if not context.as_json:
        typer.echo(sanitize(line))
        return
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    context.line(entry if isinstance(entry, dict) else {"text": line})
