"""Stop this node, and start it again in the background."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import CommandContext
from peerd.cli.errors import CommandError, parse_duration_option
from peerd.cli.node.preflight import MigrateOption, prepare_database, require_importable_code
from peerd.cli.node.start import TimeoutOption, render_started, start_node
from peerd.supervision.control import control_client

app = new_app(__doc__)


@command(app)
def restart(
    context: CommandContext,
    fast: Annotated[
        bool, typer.Option("--fast", help="Leave running tasks no grace: they are given back.", show_default=False)
    ] = False,
    timeout: TimeoutOption = "5m",
    migrate_first: MigrateOption = False,
) -> None:
    """Stop this node, and start it again in the background.

    The configuration is read, the code is imported and the tables are looked at first: while these are not right, the
    node that runs is not stopped. A node that is not running is started. Changed code or settings need no restart:
    peerd reload replaces processes one by one.
    """
    timeout_seconds = parse_duration_option("--timeout", timeout)
    require_importable_code(context)
    prepare_database(context, migrate_first=migrate_first)
    stopped = _stop(context, fast=fast)
    node_status = start_node(context, timeout_seconds)
    first = Text("stopped", "yellow") if stopped else Text("it was not running", "bright_black")
    context.answer(
        {"stopped": stopped, "started": True, "here": node_status}, lambda: Group(first, render_started(node_status))
    )


def _stop(context: CommandContext, *, fast: bool) -> bool:
    """Stop the node if it runs; return whether it did.

    Raises:
        Failure: it is somebody else's to start again.
    """
    folder = context.settings.node.run_directory
    try:
        node_status = control_client.status(folder)
        if not node_status["background"]:
            raise CommandError(
                f"this node was not started in the background (its master is process {node_status['pid']})",
                "restart it where it was started: systemctl restart, or Ctrl-C and peerd up",
            )
        control_client.stop(folder, fast=fast)
    except control_client.MasterNotRunning:
        return False
    return True
