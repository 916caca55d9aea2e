"""Start this node in the background."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import CommandContext
from peerd.cli.errors import CommandError, parse_duration_option
from peerd.cli.node.local_node import slots_table
from peerd.cli.node.preflight import MigrateOption, prepare_database
from peerd.cli.output.formatting import pluralize, sanitize
from peerd.entrypoints.node_plan import build_node_plan
from peerd.runtime.process import exit_codes
from peerd.supervision.control import control_client
from peerd.supervision.host.daemonize import NodeStartError, start_in_background

app = new_app(__doc__)

LOG_TAIL_LINES = 20

TimeoutOption = Annotated[str, typer.Option(metavar="DURATION", help="How long it may take to become ready.")]


@command(app)
def start(context: CommandContext, timeout: TimeoutOption = "5m", migrate_first: MigrateOption = False) -> None:
    """Start this node in the background.

    It waits until the node is ready, and says what runs. Its log is [logging] file, without one peerd.log in the run
    directory; see peerd logs. Exit status: 0 it is ready, 1 it may not start (configuration, database), 3 it could not
    start, for the cause that is printed; 4 it runs already.
    """
    timeout_seconds = parse_duration_option("--timeout", timeout)
    require_not_running(context)
    prepare_database(context, migrate_first=migrate_first)
    node_status = start_node(context, timeout_seconds)
    context.answer({"started": True, "here": node_status}, lambda: render_started(node_status))


def require_not_running(context: CommandContext) -> None:
    """Refuse to start a second node in the run directory.

    Raises:
        Failure: there is one.
    """
    folder = context.settings.node.run_directory
    pid = control_client.find_running_master(folder)
    if pid is not None:
        raise _already_running(pid, str(folder))


def start_node(context: CommandContext, timeout_seconds: float) -> dict[str, Any]:
    """Start the node, and return its status when it is ready.

    Raises:
        Failure: it did not become ready.
    """
    settings = context.settings
    os.environ.update(context.environment)
    try:
        return start_in_background(build_node_plan(settings, background=True), timeout_seconds)
    except NodeStartError as error:
        if error.status == exit_codes.ALREADY_RUNNING:  # somebody else has started it at the same moment
            pid = control_client.find_running_master(settings.node.run_directory)
            raise _already_running(pid, str(settings.node.run_directory)) from error
        said = error.output[-LOG_TAIL_LINES:]
        remedy = f"peerd check; the whole log is {settings.log_file}"
        status = exit_codes.REFUSED if error.status == exit_codes.REFUSED else exit_codes.BOOT_FAILED
        raise CommandError(f"cannot start: {error}", remedy, said=said, status=status, kind="NodeStartError") from error


def render_started(node_status: dict[str, Any]) -> RenderableType:
    """What runs now, for people."""
    words = f": {pluralize(len(node_status['slots']), 'process')}, master is process {node_status['pid']}"
    return Group(
        Text.assemble(("started ", "green"), (f"node {sanitize(node_status['node'])}", "bold"), words),
        slots_table(node_status, datetime.now(UTC)),
        Text.assemble(
            ("log: ", "bright_black"), sanitize(str(node_status["log_file"])), ("  (peerd logs -f)", "bright_black")
        ),
    )


def _already_running(pid: int | None, folder: str) -> CommandError:
    where = f"as process {pid} in {folder}" if pid else f"in {folder}"
    return CommandError(
        f"this node is running already, {where}",
        "peerd status; or peerd restart; another node of this machine needs another [node] name",
        status=exit_codes.ALREADY_RUNNING,
        kind="AlreadyRunning",
    )
