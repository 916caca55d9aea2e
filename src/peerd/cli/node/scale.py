"""Change how many processes a kind has, until the next start or reload."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import Desk
from peerd.cli.errors import Failure, seconds_of
from peerd.cli.node.reload import LOOK_EVERY
from peerd.cli.node.stop import RunDirectory
from peerd.cli.output.formatting import many, plain
from peerd.supervision.control import control_client

app = new_app(__doc__)


@command(app)
def scale(
    desk: Desk,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="A worker or command, such as video.")],
    processes: Annotated[int, typer.Argument(metavar="N", min=0, help="How many processes it is to have.")],
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Do not wait until it has them.", show_default=False)
    ] = False,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="How long to wait at most.")] = "5m",
    run_directory: RunDirectory = None,
) -> None:
    """Change how many processes a kind has, until the next start or reload.

    Those that are too many finish their work and leave. To keep the number, write it into peerd.toml.
    """
    patience = seconds_of("--timeout", timeout)
    folder = run_directory or desk.settings.node.run_directory
    scaled = control_client.ask(folder, {"command": "scale", "kind": kind, "processes": processes})
    if not no_wait:
        _wait(folder, kind, processes, time.monotonic() + patience, timeout)
    words = f"{plain(kind)} has {many(processes, 'process')}, and had {scaled['before']}"
    desk.answer(
        {"scaled": scaled}, Text(words if not no_wait else f"{plain(kind)} will have {many(processes, 'process')}")
    )


def _wait(folder: Any, kind: str, processes: int, deadline: float, timeout: str) -> None:
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
            raise Failure(f"it is not so within {timeout}: {plain(states)}", "peerd status; it goes on")
        time.sleep(LOOK_EVERY)
