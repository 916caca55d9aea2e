"""``peerd reload`` and ``peerd scale``: changes to the processes of a running node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.text import Text
from typer import Argument, Option

from peerd.cli.arguments import NoWaitOption, RunDirectoryOption, parse_duration_option
from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.errors import CommandError
from peerd.cli.following import poll
from peerd.cli.output import first_line, pluralize, sanitize
from peerd.supervision import control_client

app = new_app()

NodeOption = Annotated[
    str | None, Option("--node", metavar="NODE", help="On this node of the cluster instead of this machine's.")
]


@command(app)
def reload(
    context: CommandContext,
    kinds: Annotated[
        list[str] | None, Argument(metavar="KIND", help="Only these, such as video; default: all.")
    ] = None,
    config_only: Annotated[bool, Option("--config-only", help="Only the kinds whose settings have changed.")] = False,
    node: NodeOption = None,
    no_wait: NoWaitOption = False,
    run_directory: RunDirectoryOption = None,
) -> None:
    """Replace processes of this node one by one, with new code and settings; with --node, of another one.

    A new process is started first; when it is ready, the old one finishes its tasks and ends. Kinds that were removed
    from peerd.toml are stopped, new ones are started, and numbers of processes follow it. If a new process does not
    become ready, its kind keeps its old processes and the exit status is 1. Ctrl-C ends the waiting, not the reload.
    """
    if node is not None:
        _reload_other(context, node, kinds, config_only=config_only, waits=not no_wait)
        return
    context.keep_to_this_machine()
    folder = run_directory or context.settings.node.run_directory
    request = {"command": "reload", "kinds": kinds or None, "config_only": config_only}
    number = control_client.send_command(folder, request)["number"]
    if no_wait:
        context.print_result({"reload": {"number": number, "progress": "waiting"}}, "the reload is requested")
        return
    ended = _wait_for_reload(context, folder, number)
    if ended["progress"] == "abandoned":
        message = f"the reload was abandoned, the old processes go on: {ended['error']}"
        raise CommandError(message, "peerd check; then peerd reload again", kind="ReloadAbandoned")
    context.print_result({"reload": ended}, Text("reloaded", "green"))


def _wait_for_reload(context: CommandContext, folder: Path, number: int) -> Mapping[str, Any]:
    """Wait until a reload has ended; print the progress of each kind when it changes."""
    printed: dict[str, str] = {}
    for reloads in poll(lambda: control_client.status(folder)["reloads"]):
        found: Mapping[str, Any] | None = next((one for one in reloads if one["number"] == number), None)
        if found is None:
            break
        for kind, progress in found["kinds"].items():
            if printed.get(kind) != progress and progress != "waiting" and not context.as_json:
                style = "red" if progress.startswith("abandoned") else "green" if progress == "done" else ""
                line = Text.assemble((f"{sanitize(kind)}  ", "bold"), (first_line(progress), style))
                context.out.print(line, soft_wrap=True)
            printed[kind] = progress
        if found["progress"] in ("done", "abandoned"):
            return found
    raise CommandError("the end of this reload is no longer known: many others came after it", "peerd status")


@command(app)
def scale(
    context: CommandContext,
    kind: Annotated[str, Argument(metavar="KIND", help="A worker or command, such as video.")],
    processes: Annotated[int, Argument(metavar="N", min=0, help="The new number of processes.")],
    node: NodeOption = None,
    no_wait: NoWaitOption = False,
    timeout: Annotated[str, Option(metavar="DURATION", help="Wait at most this long.")] = "5m",
    run_directory: RunDirectoryOption = None,
) -> None:
    """Change the number of processes of a kind, until the next start or reload; with --node, of another node.

    Surplus processes finish their tasks and end. To keep the number, write it into peerd.toml.
    """
    seconds = parse_duration_option("--timeout", timeout)
    if node is not None:
        _scale_other(context, node, kind, processes, timeout=seconds, waits=not no_wait)
        return
    context.keep_to_this_machine()
    folder = run_directory or context.settings.node.run_directory
    scaled = control_client.send_command(folder, {"command": "scale", "kind": kind, "processes": processes})
    number = pluralize(processes, "process")
    if no_wait:
        context.print_result({"scaled": scaled}, f"{kind} will have {number}")
        return
    slots: list[dict[str, Any]] = []
    for slots in poll(lambda: _slots_of(folder, kind), seconds):
        if len(slots) == processes and all(slot["state"] in {"RUNNING", "EXITED"} for slot in slots):
            context.print_result({"scaled": scaled}, f"{kind} has {number}, and had {scaled['before']}")
            return
    states = ", ".join(f"{slot['name']} {slot['state']}" for slot in slots)
    raise CommandError(f"not scaled within {timeout}: {states}", "peerd status; scaling continues")


def _slots_of(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [slot for slot in control_client.status(folder)["slots"] if slot["kind"] == kind]


# ---------------------------------------------------------------- on another node


def _reload_other(
    context: CommandContext, node: str, kinds: Sequence[str] | None, *, config_only: bool, waits: bool
) -> None:
    """Reload kinds of another node, and print what has become of each."""
    nodes, names = context.client.nodes, kinds or None
    if not waits:
        request = nodes.request_reload(node, names, config_only=config_only)
        context.print_result({"request": request}, f"the reload of {node} is requested: {request.id}")
        return
    ended = nodes.reload(node, names, config_only=config_only)
    lines = [Text(f"{sanitize(kind)}  {sanitize(progress)}") for kind, progress in ended.kinds.items()]
    context.print_result({"node": node, "reload": ended}, *lines, Text(f"{sanitize(node)} is reloaded", "green"))


def _scale_other(context: CommandContext, node: str, kind: str, processes: int, *, timeout: float, waits: bool) -> None:
    """Scale a kind of another node."""
    number = pluralize(processes, "process")
    if not waits:
        request = context.client.nodes.request_scale(node, kind, processes)
        context.print_result({"request": request}, f"{kind} of {node} will have {number}: request {request.id}")
        return
    scaled = context.client.nodes.scale(node, kind, processes, timeout=timeout)
    context.print_result({"node": node, "scaled": scaled}, f"{kind} of {node} has {number}, and had {scaled.before}")
