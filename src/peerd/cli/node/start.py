"""Start this node in the background."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import Desk
from peerd.cli.errors import Failure, seconds_of
from peerd.cli.node.local_node import slots_table
from peerd.cli.node.preflight import MigrateFirst, prepare
from peerd.cli.output.formatting import many, plain
from peerd.entrypoints.node_plan import plan
from peerd.runtime.process import exit_codes
from peerd.supervision.control import control_client
from peerd.supervision.host.daemonize import DidNotStart, start_in_background

app = new_app(__doc__)

LINES_OF_THE_LOG = 20

Timeout = Annotated[str, typer.Option(metavar="DURATION", help="How long it may take to become ready.")]


@command(app)
def start(desk: Desk, timeout: Timeout = "5m", migrate_first: MigrateFirst = False) -> None:
    """Start this node in the background.

    It waits until the node is ready, and says what runs. Its log is [logging] file, without one peerd.log in the run
    directory; see peerd logs. Exit status: 0 it is ready, 1 it may not start (configuration, database), 3 it could not
    start, for the cause that is printed; 4 it runs already.
    """
    patience = seconds_of("--timeout", timeout)
    require_nobody(desk)
    prepare(desk, migrate_first=migrate_first)
    here = begin(desk, patience)
    desk.answer({"started": True, "here": here}, lambda: started(here))


def require_nobody(desk: Desk) -> None:
    """Refuse to start a second node in the run directory.

    Raises:
        Failure: there is one.
    """
    folder = desk.settings.node.run_directory
    pid = control_client.running_master(folder)
    if pid is not None:
        raise _runs_already(pid, str(folder))


def begin(desk: Desk, patience: float) -> dict[str, Any]:
    """Start the node, and return its status when it is ready.

    Raises:
        Failure: it did not become ready.
    """
    settings = desk.settings
    os.environ.update(desk.environment)
    try:
        return start_in_background(plan(settings, background=True), patience)
    except DidNotStart as error:
        if error.status == exit_codes.ALREADY_RUNNING:  # somebody else has started it at the same moment
            pid = control_client.running_master(settings.node.run_directory)
            raise _runs_already(pid, str(settings.node.run_directory)) from error
        said = error.said[-LINES_OF_THE_LOG:]
        remedy = f"peerd check; the whole log is {settings.log_file}"
        status = exit_codes.REFUSED if error.status == exit_codes.REFUSED else exit_codes.BOOT_FAILED
        raise Failure(f"cannot start: {error}", remedy, said=said, status=status, kind="DidNotStart") from error


def started(here: dict[str, Any]) -> RenderableType:
    """What runs now, for people."""
    words = f": {many(len(here['slots']), 'process')}, master is process {here['pid']}"
    return Group(
        Text.assemble(("started ", "green"), (f"node {plain(here['node'])}", "bold"), words),
        slots_table(here, datetime.now(UTC)),
        Text.assemble(("log: ", "bright_black"), plain(str(here["log_file"])), ("  (peerd logs -f)", "bright_black")),
    )


def _runs_already(pid: int | None, folder: str) -> Failure:
    where = f"as process {pid} in {folder}" if pid else f"in {folder}"
    return Failure(
        f"this node is running already, {where}",
        "peerd status; or peerd restart; another node of this machine needs another [node] name",
        status=exit_codes.ALREADY_RUNNING,
        kind="AlreadyRunning",
    )
