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
from peerd.cli.context import Desk
from peerd.cli.errors import WRONG_USAGE, Failure
from peerd.cli.node.log_reader import Follower, Wanted, end_of_lines, last_lines
from peerd.cli.node.stop import RunDirectory
from peerd.cli.output.formatting import plain
from peerd.config.reading.suggestions import near
from peerd.supervision.control import control_client

app = new_app(__doc__)

LOOK_EVERY = 0.2


@command(app)
def logs(
    desk: Desk,
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
    run_directory: RunDirectory = None,
) -> None:
    """Show the log of this node, and follow it.

    Of a node in the background, and of any other that has a [logging] file. It reads on in the rotated files where the
    present one has too few lines, and follows the log over its rotations. Lines that name no process belong to the
    entry above them.
    """
    path = _log_file(desk, run_directory)
    wanted = Wanted(slots or [])
    end = end_of_lines(path)
    _require_known(desk, slots or [], run_directory, path, end)
    for line in last_lines(path, lines, Wanted(slots or []), end):
        _show(desk, line)
    if follow:
        _follow(desk, path, end, wanted)


def _log_file(desk: Desk, run_directory: Path | None) -> Path:
    """The log of the node that runs; without one, that of the last, where the configuration has it."""
    try:
        here = control_client.status(run_directory or desk.settings.node.run_directory)
    except control_client.NotRunning:
        path = run_directory / "peerd.log" if run_directory else desk.settings.log_file
    else:
        if here["log_file"] is None:
            raise Failure(
                f"this node has no log file: master {here['pid']} writes to what it was started with",
                "look at its terminal, or journalctl, or give [logging] file; peerd start has a log file always",
            )
        path = Path(here["log_file"])
    if not path.exists():
        raise Failure(f"there is no log {path}", "peerd start writes one")
    return path


def _require_known(desk: Desk, slots: Sequence[str], run_directory: Path | None, path: Path, end: int) -> None:
    """Refuse a name that no slot and no kind has, nor ever had in this log.

    Raises:
        Failure: there is one.
    """
    known = _kinds(desk, run_directory) if slots else set()
    for slot in slots:
        if {slot, re.sub(r"-\d+$", "", slot)} & known or last_lines(path, 1, Wanted([slot]), end):
            continue
        there = f"; there are: {', '.join(sorted(known))}" if known else ""
        raise Failure(f"no line of this log is of {slot}{there}", near(slot, known), status=WRONG_USAGE)


def _kinds(desk: Desk, run_directory: Path | None) -> set[str]:
    """The kinds of processes that run, or that the configuration has."""
    try:
        here = control_client.status(run_directory or desk.settings.node.run_directory)
        return {re.sub(r"-\d+$", "", slot["name"]) for slot in here["slots"]}
    except control_client.NotRunning:
        if run_directory is not None:  # then there may be no configuration that can be read
            return set()
        settings = desk.settings
        return {"agent", "manager", *settings.workers, *settings.web, *settings.commands}


def _follow(desk: Desk, path: Path, begin: int, wanted: Wanted) -> None:
    follower = Follower(path, begin)
    try:
        while True:
            for line in follower.read(time.monotonic()):
                if wanted(line):
                    _show(desk, line)
            time.sleep(LOOK_EVERY)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        follower.close()


def _show(desk: Desk, line: str) -> None:
    """A line; for programs an object, as it was written or with the line as its text."""
    if not desk.as_json:
        typer.echo(plain(line))
        return
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    desk.line(entry if isinstance(entry, dict) else {"text": line})
