"""Change how many processes a kind has, until the next start or reload."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import CommandContext
from peerd.cli.errors import CommandError, parse_duration_option
from peerd.cli.node.reload import POLL_INTERVAL
from peerd.cli.node.stop import RunDirectoryOption
from peerd.cli.output.formatting import pluralize, sanitize
from peerd.supervision.control import control_client

app = new_app(__doc__)


@command(app)
def scale(
    context: CommandContext,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="A worker or command, such as video.")],
    processes: Annotated[int, typer.Argument(metavar="N", min=0, help="How many processes it is to have.")],
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Do not wait until it has them.", show_default=False)
    ] = False,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="How long to wait at most.")] = "5m",
    run_directory: RunDirectoryOption = None,
) -> None:
    """Change how many processes a kind has, until the next start or reload.

    Those that are too many finish their work and leave. To keep the number, write it into peerd.toml.
    """
    timeout_seconds = parse_duration_option("--timeout", timeout)
    folder = run_directory or context.settings.node.run_directory
    scaled = control_client.send_command(folder, {"command": "scale", "kind": kind, "processes": processes})
    if not no_wait:
        _wait_until_scaled(folder, kind, processes, time.monotonic() + timeout_seconds, timeout)
    words = f"{sanitize(kind)} has {pluralize(processes, 'process')}, and had {scaled['before']}"
    context.answer(
        {"scaled": scaled},
        Text(words if not no_wait else f"{sanitize(kind)} will have {pluralize(processes, 'process')}"),
    )


def _wait_until_scaled(folder: Any, kind: str, processes: int, deadline: float, timeout: str) -> None:
    """Wait until as many run, and no other.

    Raises:
        Failure: they do not.
    """
    while True:
        slots = [slot for slot in control_client.status(folder)["slots"] if slot["kind"] == kind]
        if len(slots) == processes and all(slot["state"] in {"RUNNING", "EXITED"} for slot in slots):
            return
        if time.monotonic() >= deadline:
            states = ", ".join(f"{slot['name']} {slot['state']}" for slot in slots)
            raise CommandError(f"it is not so within {timeout}: {sanitize(states)}", "peerd status; it goes on")
        time.sleep(POLL_INTERVAL)
