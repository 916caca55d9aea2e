"""Stop this node and wait until it has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import CommandContext
from peerd.cli.errors import CommandError, parse_duration_option
from peerd.cli.output.formatting import sanitize
from peerd.supervision.control import control_client

app = new_app(__doc__)

RunDirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--run-directory", metavar="PATH", show_default=False,
        help="Where the node runs, when its configuration cannot be read any more.",
    ),
]  # fmt: skip


@command(app)
def stop(
    context: CommandContext,
    fast: Annotated[
        bool, typer.Option("--fast", help="Leave running tasks no grace: they are given back.", show_default=False)
    ] = False,
    timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Wait at most this long; the node goes on stopping.")
    ] = None,
    run_directory: RunDirectoryOption = None,
) -> None:
    """Stop this node and wait until it has ended.

    Running tasks are finished, for at most the node's grace; what is left is given back to the table.
    """
    folder = run_directory or context.settings.node.run_directory
    timeout_seconds = None if timeout is None else parse_duration_option("--timeout", timeout)
    try:
        control_client.stop(folder, fast=fast, timeout=timeout_seconds)
    except control_client.MasterNotResponding:
        raise
    except TimeoutError:
        raise _still_stopping(folder, f"it has not ended within {timeout}", fast=fast) from None
    context.answer({"stopped": True}, Text("stopped", "green"))


def _still_stopping(folder: Path, what: str, *, fast: bool) -> CommandError:
    """What it waits for, and what would be quicker."""
    try:
        node_status = control_client.status(folder)
    except control_client.MasterNotRunning:  # just now
        return CommandError(what, "peerd status: it has ended meanwhile")
    busy = [slot["name"] for slot in node_status["slots"] if slot["pid"] or slot["leaving"]]
    remedy = f"kill -9 {node_status['pid']}: its processes notice, and end" if fast else "peerd stop --fast"
    return CommandError(f"{what}; it goes on stopping, and waits for {sanitize(', '.join(busy))}", remedy)
