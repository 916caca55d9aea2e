"""Replace processes of this node one by one, with new code and settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import CommandContext
from peerd.cli.errors import CommandError
from peerd.cli.node.stop import RunDirectoryOption
from peerd.cli.output.formatting import first_line, sanitize
from peerd.supervision.control import control_client

app = new_app(__doc__)

POLL_INTERVAL: Final = 0.2
FINISHED: Final = ("done", "abandoned")


@command(app)
def reload(
    context: CommandContext,
    kinds: Annotated[
        list[str] | None,
        typer.Argument(metavar="KIND", help="Only these, such as video; default: all.", show_default=False),
    ] = None,
    config_only: Annotated[
        bool, typer.Option("--config-only", help="Only those whose settings have changed.", show_default=False)
    ] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait for its end.", show_default=False)] = False,
    run_directory: RunDirectoryOption = None,
) -> None:
    """Replace processes of this node one by one, with new code and settings.

    A new process first: when it is ready, the old one finishes its work and leaves. Kinds that peerd.toml has no more
    are stopped, new ones are started, numbers of processes are followed. Where a new process does not become ready, its
    kind is left as it was, with its old processes; the exit status is 1 then. Ctrl-C ends the waiting, not the reload.
    """
    folder = run_directory or context.settings.node.run_directory
    number = control_client.send_command(
        folder, {"command": "reload", "kinds": kinds or None, "config_only": config_only}
    )["number"]
    if no_wait:
        context.answer({"reload": {"number": number, "progress": "waiting"}}, Text("the reload is asked for"))
        return
    printer = _ReloadPrinter(context)
    try:
        ended = wait_for_reload(lambda: control_client.status(folder), number, printer)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if ended["progress"] == "abandoned":
        raise CommandError(
            _describe_abandoned(ended), "the old processes go on; mend it, and reload again", kind="ReloadAbandoned"
        )
    context.answer({"reload": ended}, Text("reloaded", "green"))


def wait_for_reload(
    status: Callable[[], Mapping[str, Any]], number: int, report: Callable[[Mapping[str, Any]], None]
) -> Mapping[str, Any]:
    """Wait until a reload is over, telling each look at it.

    Args:
        status: asks the master.
        number: of the reload.
        report: gets what the master says of it.

    Raises:
        Failure: the master has forgotten it, for it has had many others since.
    """
    while True:
        request: Mapping[str, Any] | None = next((one for one in status()["reloads"] if one["number"] == number), None)
        if request is None:
            raise CommandError("this reload is so long over that its end is forgotten", "peerd status")
        report(request)
        if request["progress"] in FINISHED:
            return request
        time.sleep(POLL_INTERVAL)


class _ReloadPrinter:
    """Prints what is new of each kind."""

    def __init__(self, context: CommandContext) -> None:
        self._desk = context
        self._reported: dict[str, str] = {}

    def __call__(self, request: Mapping[str, Any]) -> None:
        for kind, how in request["kinds"].items():
            if self._reported.get(kind) != how and how != "waiting" and not self._desk.as_json:
                style = "red" if how.startswith("abandoned") else "green" if how == "done" else ""
                self._desk.out.print(
                    Text.assemble((f"{sanitize(kind)}  ", "bold"), (first_line(how), style)), soft_wrap=True
                )
            self._reported[kind] = how


def _describe_abandoned(request: Mapping[str, Any]) -> str:
    return f"the reload was abandoned: {request['error']}"
