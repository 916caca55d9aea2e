"""Stop this node and wait until it has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import Desk
from peerd.cli.errors import Failure, seconds_of
from peerd.cli.output.formatting import plain
from peerd.supervision.control import control_client

app = new_app(__doc__)

RunDirectory = Annotated[
    Path | None,
    typer.Option(
        "--run-directory", metavar="PATH", show_default=False,
        help="Where the node runs, when its configuration cannot be read any more.",
    ),
]  # fmt: skip


@command(app)
def stop(
    desk: Desk,
    fast: Annotated[
        bool, typer.Option("--fast", help="Leave running tasks no grace: they are given back.", show_default=False)
    ] = False,
    timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Wait at most this long; the node goes on stopping.")
    ] = None,
    run_directory: RunDirectory = None,
) -> None:
    """Stop this node and wait until it has ended.

    Running tasks are finished, for at most the node's grace; what is left is given back to the table.
    """
    folder = run_directory or desk.settings.node.run_directory
    patience = None if timeout is None else seconds_of("--timeout", timeout)
    try:
        control_client.stop(folder, fast=fast, timeout=patience)
    except control_client.NotAnswering:
        raise
    except TimeoutError:
        raise _goes_on(folder, f"it has not ended within {timeout}", fast=fast) from None
    desk.answer({"stopped": True}, Text("stopped", "green"))


def _goes_on(folder: Path, what: str, *, fast: bool) -> Failure:
    """What it waits for, and what would be quicker."""
    try:
        here = control_client.status(folder)
    except control_client.NotRunning:  # just now
        return Failure(what, "peerd status: it has ended meanwhile")
    busy = [slot["name"] for slot in here["slots"] if slot["pid"] or slot["leaving"]]
    remedy = f"kill -9 {here['pid']}: its processes notice, and end" if fast else "peerd stop --fast"
    return Failure(f"{what}; it goes on stopping, and waits for {plain(', '.join(busy))}", remedy)
