"""Stop this node, and start it again in the background."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import Desk
from peerd.cli.errors import Failure, seconds_of
from peerd.cli.node.preflight import MigrateFirst, prepare, require_code
from peerd.cli.node.start import Timeout, begin, started
from peerd.supervision.control import control_client

app = new_app(__doc__)


@command(app)
def restart(
    desk: Desk,
    fast: Annotated[
        bool, typer.Option("--fast", help="Leave running tasks no grace: they are given back.", show_default=False)
    ] = False,
    timeout: Timeout = "5m",
    migrate_first: MigrateFirst = False,
) -> None:
    """Stop this node, and start it again in the background.

    The configuration is read, the code is imported and the tables are looked at first: while these are not right, the
    node that runs is not stopped. A node that is not running is started. Changed code or settings need no restart:
    peerd reload replaces processes one by one.
    """
    patience = seconds_of("--timeout", timeout)
    require_code(desk)
    prepare(desk, migrate_first=migrate_first)
    stopped = _stop(desk, fast=fast)
    here = begin(desk, patience)
    first = Text("stopped", "yellow") if stopped else Text("it was not running", "bright_black")
    desk.answer({"stopped": stopped, "started": True, "here": here}, lambda: Group(first, started(here)))


def _stop(desk: Desk, *, fast: bool) -> bool:
    """Stop the node if it runs; return whether it did.

    Raises:
        Failure: it is somebody else's to start again.
    """
    folder = desk.settings.node.run_directory
    try:
        here = control_client.status(folder)
        if not here["background"]:
            raise Failure(
                f"this node was not started in the background (its master is process {here['pid']})",
                "restart it where it was started: systemctl restart, or Ctrl-C and peerd up",
            )
        control_client.stop(folder, fast=fast)
    except control_client.NotRunning:
        return False
    return True
