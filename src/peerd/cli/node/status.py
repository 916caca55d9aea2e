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
from peerd.cli.context import Desk
from peerd.cli.errors import seconds_of
from peerd.cli.node.local_node import node_here
from peerd.cli.node.stop import RunDirectory
from peerd.cli.output.formatting import STYLES, many, plain
from peerd.cli.output.resizing import Resizing
from peerd.domain.lifecycle import Status
from peerd.operate.client import Client
from peerd.runtime.process.process_context import BELL
from peerd.supervision.control import control_client

app = new_app(__doc__)
COMPONENTS_WITHIN = 1.0
"""Seconds that the agent has to say how its components are; the rest is shown in any case."""


@command(app)
def status(
    desk: Desk,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Look again and again, at this node alone.", show_default=False)
    ] = False,
    every: Annotated[str, typer.Option(metavar="DURATION", help="Between two looks.")] = "1s",
    run_directory: RunDirectory = None,
) -> None:
    """Show the processes of this node, and the cluster.

    Also without a node on this machine: the cluster is read from the database. Of each slot: its state, how many
    processes it has had (gen) and how many of them replaced another one, how long the present one is up, its memory,
    its share of one processor, how late its event loop is (lag), and the tasks that it runs.
    """
    if watch:
        _watch(desk, run_directory, max(seconds_of("--every", every), 0.05))
        return
    here = _here(desk, run_directory)
    cluster = _cluster(desk)
    answer = {"here": here, "cluster": cluster}
    desk.answer(answer, lambda: Group(node_here(here, datetime.now(UTC)), Text(), _the_cluster(cluster)))


def _watch(desk: Desk, run_directory: Path | None, pause: float) -> None:
    """Show the node until Ctrl-C. The cluster is left out: a database that does not answer would hold the picture."""
    try:
        if desk.as_json:
            for here in _looks(desk, run_directory, pause):
                desk.line({"here": here})
        resizing = Resizing(desk.out)
        with Live(console=desk.out, auto_refresh=False) as live:
            for here in _looks(desk, run_directory, pause):
                resizing.clear()
                live.update(node_here(here, datetime.now(UTC)), refresh=True)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _looks(desk: Desk, run_directory: Path | None, pause: float) -> Iterator[dict[str, Any] | None]:
    while True:
        yield _here(desk, run_directory)
        time.sleep(pause)


def _here(desk: Desk, run_directory: Path | None) -> dict[str, Any] | None:
    folder = run_directory or desk.settings.node.run_directory
    try:
        status = control_client.status(folder)
        return {**status, "components": _of_the_agent(folder, "components"), "bell": _of_the_agent(folder, BELL)}
    except control_client.NotRunning:
        return None


def _of_the_agent(folder: Path, action: str) -> Any:
    """How the components of the agent are, or the doorbell, as it says itself; None while it cannot be asked."""
    try:
        return control_client.call_agent(folder, action, timeout=COMPONENTS_WITHIN)
    except control_client.Refused:
        return None


def _cluster(desk: Desk) -> dict[str, Any]:
    """What the database says; that it says nothing is an answer too."""
    try:
        return _ask(desk.client)
    except Exception as error:
        failure = desk.failure_of(error)
        if failure is None:
            raise
        return {"error": failure.as_json()}


def _ask(client: Client) -> dict[str, Any]:
    return {
        "now": client.now(),
        "nodes": client.nodes.list(),
        "processes": client.nodes.processes(),
        "tasks": client.tasks.counts(),
    }


def _the_cluster(cluster: dict[str, Any]) -> RenderableType:
    if "error" in cluster:
        return Text.assemble(("cluster: ", "bold"), (plain(cluster["error"]["message"]), "red"))
    running = Counter(process.node_id for process in cluster["processes"])
    parts: list[tuple[str, str] | str] = [("tasks  ", "bold")]
    for status in Status:
        if cluster["tasks"][status]:
            parts += [(f"{cluster['tasks'][status]:,} {status}", STYLES[status]), "  "]
    if len(parts) == 1:
        parts.append("none")
    title = Text(f"cluster of {many(len(cluster['nodes']), 'node')}", "bold")
    return Group(title, nodes_table(cluster["nodes"], running, cluster["now"]), Text(), Text.assemble(*parts))
