"""Show the processes of this node, and the cluster."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.desk import Desk
from peerd.cli.failures import failure_of
from peerd.cli.nodes import nodes_table
from peerd.cli.stop import RunDirectory
from peerd.cli.tables import Column, table
from peerd.cli.words import STYLES, many, plain, short_span, span
from peerd.domain.lifecycle import Status
from peerd.operate.client import Client
from peerd.supervision import control

app = new_app(__doc__)

STATES = {"RUNNING": "green", "STARTING": "cyan", "BACKOFF": "bold red", "DRAINING": "yellow"}


@command(app)
def status(desk: Desk, run_directory: RunDirectory = None) -> None:
    """Show the processes of this node, and the cluster.

    Also without a node on this machine: the cluster is read from the database.
    """
    here = _here(desk, run_directory)
    cluster = _cluster(desk)
    answer = {"here": here, "cluster": cluster}
    desk.answer(answer, lambda: Group(_node_here(here), Text(), _the_cluster(cluster)))


def _here(desk: Desk, run_directory: Any) -> dict[str, Any] | None:
    try:
        return control.status(run_directory or desk.settings.node.run_directory)
    except control.NotRunning:
        return None


def _cluster(desk: Desk) -> dict[str, Any]:
    """What the database says; that it says nothing is an answer too."""
    try:
        return _ask(desk.client)
    except Exception as error:
        failure = failure_of(error)
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


def _node_here(here: dict[str, Any] | None) -> RenderableType:
    if here is None:
        return Text.assemble(("no node is running here", "bold"), "; start one with peerd up")
    now = datetime.now(UTC)
    up = span((now - datetime.fromisoformat(here["started_at"])).total_seconds())
    title = Text.assemble(
        (f"node {here['node']} ", "bold"), (here["state"], "green"), f" for {up}, master is process {here['pid']}"
    )
    return Group(title, table(_SLOT_COLUMNS, [_slot_row(slot, now) for slot in here["slots"]]))


_SLOT_COLUMNS = (
    Column("slot"),
    Column("state"),
    Column("pid", right=True),
    Column("for", right=True),
    Column("restarts", right=True),
    Column("last end", wide=True),
)


def _slot_row(slot: dict[str, Any], now: datetime) -> list[Text]:
    since = slot["started_at"]
    age = "" if since is None else short_span((now - datetime.fromisoformat(since)).total_seconds())
    cause = slot["error"] or (slot["last_cause"] or {}).get("text") or ""
    return [
        Text(slot["name"]),
        Text(slot["state"].lower(), STATES.get(slot["state"].upper(), "")),
        Text(str(slot["pid"] or "–")),
        Text(age or "–"),
        Text(str(slot["restarts"])),
        Text(plain(str(cause)).splitlines()[0] if cause else ""),
    ]


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
