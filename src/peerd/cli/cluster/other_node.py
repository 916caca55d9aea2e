"""``peerd reload --node`` and ``peerd scale --node``: requests to another node of the cluster."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from peerd.cli.command import CommandContext
from peerd.cli.output import pluralize, sanitize


def reload(context: CommandContext, node: str, kinds: Sequence[str] | None, *, config_only: bool, waits: bool) -> None:
    """Reload kinds of a node, and print what has become of each."""
    nodes, names = context.client.nodes, kinds or None
    if not waits:
        request = nodes.request_reload(node, names, config_only=config_only)
        context.print_result({"request": request}, f"the reload of {node} is requested: {request.id}")
        return
    ended = nodes.reload(node, names, config_only=config_only)
    lines = [Text(f"{sanitize(kind)}  {sanitize(progress)}") for kind, progress in ended.kinds.items()]
    context.print_result({"node": node, "reload": ended}, *lines, Text(f"{sanitize(node)} is reloaded", "green"))


def scale(context: CommandContext, node: str, kind: str, processes: int, *, timeout: float, waits: bool) -> None:
    """Scale a kind of a node."""
    number = pluralize(processes, "process")
    if not waits:
        request = context.client.nodes.request_scale(node, kind, processes)
        context.print_result({"request": request}, f"{kind} of {node} will have {number}: request {request.id}")
        return
    scaled = context.client.nodes.scale(node, kind, processes, timeout=timeout)
    context.print_result({"node": node, "scaled": scaled}, f"{kind} of {node} has {number}, and had {scaled.before}")
