"""Show the processes of this node, and the cluster."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from peerd.cli.cluster.nodes import nodes_table
from peerd.cli.command import command, new_app
from peerd.cli.context import CommandContext
from peerd.cli.errors import parse_duration_option
from peerd.cli.node.local_node import render_node
from peerd.cli.node.stop import RunDirectoryOption
from peerd.cli.output.formatting import STATUS_STYLES, pluralize, sanitize
from peerd.cli.output.resizing import ResizeDetector
from peerd.domain.lifecycle import Status
from peerd.operate.client import Client
from peerd.runtime.process.process_context import DOORBELL_ACTION
from peerd.supervision.control import control_client

app = new_app(__doc__)
AGENT_TIMEOUT = 1.0
"""Seconds that the agent has to say how its components are; the rest is shown in any case."""


@command(app)
def status(
    context: CommandContext,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Look again and again, at this node alone.", show_default=False)
    ] = False,
    every: Annotated[str, typer.Option(metavar="DURATION", help="Between two looks.")] = "1s",
    run_directory: RunDirectoryOption = None,
) -> None:
    """Show the processes of this node, and the cluster.

    Also without a node on this machine: the cluster is read from the database. Of each slot: its state, how many
    processes it has had (gen) and how many of them replaced another one, how long the present one is up, its memory,
    its share of one processor, how late its event loop is (lag), and the tasks that it runs.
    """
    if watch:
        _watch(context, run_directory, max(parse_duration_option("--every", every), 0.05))
        return
    node_status = _read_node(context, run_directory)
    cluster = _read_cluster(context)
    answer = {"here": node_status, "cluster": cluster}
    context.answer(answer, lambda: Group(render_node(node_status, datetime.now(UTC)), Text(), _render_cluster(cluster)))


def _watch(context: CommandContext, run_directory: Path | None, pause: float) -> None:
    """Show the node until Ctrl-C. The cluster is left out: a database that does not answer would hold the picture."""
    try:
        if context.as_json:
            for node_status in _poll_node(context, run_directory, pause):
                context.line({"here": node_status})
        resizing = ResizeDetector(context.out)
        with Live(console=context.out, auto_refresh=False) as live:
            for node_status in _poll_node(context, run_directory, pause):
                resizing.clear()
                live.update(render_node(node_status, datetime.now(UTC)), refresh=True)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _poll_node(context: CommandContext, run_directory: Path | None, pause: float) -> Iterator[dict[str, Any] | None]:
    while True:
        yield _read_node(context, run_directory)
        time.sleep(pause)


def _read_node(context: CommandContext, run_directory: Path | None) -> dict[str, Any] | None:
    folder = run_directory or context.settings.node.run_directory
    try:
        status = control_client.status(folder)
        return {
            **status,
            "components": _query_agent(folder, "components"),
            "bell": _query_agent(folder, DOORBELL_ACTION),
        }
    except control_client.MasterNotRunning:
        return None


def _query_agent(folder: Path, action: str) -> Any:
    """How the components of the agent are, or the doorbell, as it says itself; None while it cannot be asked."""
    try:
        return control_client.call_agent(folder, action, timeout=AGENT_TIMEOUT)
    except control_client.CommandRefused:
        return None


def _read_cluster(context: CommandContext) -> dict[str, Any]:
    """What the database says; that it says nothing is an answer too."""
    try:
        return _query_cluster(context.client)
    except Exception as error:
        failure = context.to_command_error(error)
        if failure is None:
            raise
        return {"error": failure.as_json()}


def _query_cluster(client: Client) -> dict[str, Any]:
    return {
        "now": client.now(),
        "nodes": client.nodes.list(),
        "processes": client.nodes.processes(),
        "tasks": client.tasks.counts(),
    }


def _render_cluster(cluster: dict[str, Any]) -> RenderableType:
    if "error" in cluster:
        return Text.assemble(("cluster: ", "bold"), (sanitize(cluster["error"]["message"]), "red"))
    running = Counter(process.node_id for process in cluster["processes"])
    parts: list[tuple[str, str] | str] = [("tasks  ", "bold")]
    for status in Status:
        if cluster["tasks"][status]:
            parts += [(f"{cluster['tasks'][status]:,} {status}", STATUS_STYLES[status]), "  "]
    if len(parts) == 1:
        parts.append("none")
    title = Text(f"cluster of {pluralize(len(cluster['nodes']), 'node')}", "bold")
    return Group(title, nodes_table(cluster["nodes"], running, cluster["now"]), Text(), Text.assemble(*parts))
