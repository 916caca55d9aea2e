"""``peerd status``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from rich.console import Group, RenderableType
from rich.text import Text
from typer import Option

from peerd.cli import following
from peerd.cli.arguments import RunDirectoryOption
from peerd.cli.cluster.nodes import nodes_table
from peerd.cli.cluster.statistics import format_rate, format_seconds
from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.node.local_node import render_node
from peerd.cli.output import STATUS_STYLES, VERDICT_STYLES, finding_lines, format_elapsed_short, pluralize, sanitize
from peerd.domain.lifecycle import Status
from peerd.operate.figures import Overview
from peerd.runtime.process.process_context import DOORBELL_ACTION
from peerd.store.queue_states import QueueState
from peerd.supervision import control_client

app = new_app()
AGENT_TIMEOUT = 1.0
"""Seconds that the agent has to report its components; the rest is shown in any case."""


@command(app, of_this_machine=True)
def status(
    context: CommandContext,
    watch: Annotated[bool, Option("--watch", "-w", help="Show the node, without the cluster, until Ctrl-C.")] = False,
    check: Annotated[
        bool, Option("--check", help="Print what keeps the node from its work; exit status 1 if there is anything.")
    ] = False,
    every: Annotated[str, Option(metavar="DURATION", help="The interval of --watch.")] = "1s",
    run_directory: RunDirectoryOption = None,
) -> None:
    """Show the processes of this node, and the cluster.

    The cluster is read from the database; no node need run on this machine. The columns of a slot: its state, how many
    processes it has had (gen), the age of the current process, how many processes replaced another one, memory, share
    of one processor, delay of its event loop (lag), and the tasks that it runs.
    """
    if watch:
        following.watch(context, every, lambda: _draw_node(context, run_directory))
        return
    node_status = _read_node(context, run_directory)
    cluster = _read_cluster(context)
    if check:
        failures = list(find_failures(node_status, cluster))
        lines = [Text(sanitize(failure), "red") for failure in failures] or [Text("healthy", "green")]
        context.print_result({"healthy": not failures, "failures": failures}, *lines, failed=bool(failures))
        return
    picture = Group(render_node(node_status, datetime.now(UTC)), Text(), _render_cluster(cluster))
    context.print_result({"here": node_status, "cluster": cluster}, picture)


def _draw_node(context: CommandContext, run_directory: Path | None) -> tuple[dict[str, Any], RenderableType]:
    """The node alone: a database that does not answer would delay the display."""
    node_status = _read_node(context, run_directory)
    return {"here": node_status}, render_node(node_status, datetime.now(UTC))


def _read_node(context: CommandContext, run_directory: Path | None) -> dict[str, Any] | None:
    folder = run_directory or context.settings.node.run_directory
    try:
        status = control_client.status(folder)
        return {
            **status,
            "components": _query_agent(folder, "components"),
            "doorbell": _query_agent(folder, DOORBELL_ACTION),
        }
    except control_client.MasterNotRunning:
        return None


def _query_agent(folder: Path, action: str) -> Any:
    """The agent's report; None while it cannot answer."""
    try:
        return control_client.call_agent(folder, action, timeout=AGENT_TIMEOUT)
    except control_client.CommandRefused:
        return None


def _read_cluster(context: CommandContext) -> dict[str, Any]:
    """The cluster as the database has it, or the error."""
    try:
        client = context.client
        return {
            "now": client.now(),
            "nodes": client.nodes.list(),
            "processes": client.nodes.processes(),
            "loads": client.nodes.loads(),
            **_count_tasks(client.queues.list()),
            "statistics": client.statistics.overview(),
        }
    except Exception as error:
        failure = context.to_command_error(error)
        if failure is None:
            raise
        return {"error": failure.as_json()}


def _count_tasks(queues: Sequence[QueueState]) -> dict[str, Any]:
    """The tasks of each status, and the statuses that have so many or more."""
    counts = {status: sum(queue.counts.get(status, 0) for queue in queues) for status in Status}
    at_least = [status for status in Status if any(status in queue.at_least for queue in queues)]
    return {"tasks": counts, "at_least": at_least}


def _render_cluster(cluster: dict[str, Any]) -> RenderableType:
    if "error" in cluster:
        return Text.assemble(("cluster: ", "bold"), (sanitize(cluster["error"]["message"]), "red"))
    counts: list[tuple[str, str] | str] = []
    for status in Status:
        if cluster["tasks"][status]:
            more = "+" if status in cluster["at_least"] else ""
            counts += [(f"{cluster['tasks'][status]:,}{more} {status}", STATUS_STYLES[status]), "  "]
    title = Text(f"cluster of {pluralize(len(cluster['nodes']), 'node')}", "bold")
    tasks = Text.assemble(("tasks  ", "bold"), *(counts or ["none"]))
    nodes = nodes_table(cluster["nodes"], cluster["processes"], cluster["loads"], cluster["now"])
    overview: Overview = cluster["statistics"]
    verdict = Text.assemble(("verdict  ", "bold"), (overview.verdict, VERDICT_STYLES[overview.verdict]))
    lines = [tasks, _rates_line(overview), verdict, *finding_lines(overview.concerns)]
    return Group(title, nodes, Text(), *lines)


def _rates_line(overview: Overview) -> Text:
    """Rates, waits and slots of the last ten minutes."""
    figures = overview.figures
    failures = 60 * figures.failures / figures.seconds
    parts: list[tuple[str, str] | str] = [("rates  ", "bold"), f"{format_rate(60 * figures.per_second)} done/min  "]
    if failures:
        parts.append((f"{format_rate(failures)} failed/min  ", "red"))
    parts.append(f"wait p95 {format_seconds(figures.wait.p95)}  ")
    if overview.slots:
        parts.append(f"{figures.busy:.1f} of {pluralize(overview.slots, 'slot')} busy  ")
    if overview.oldest is not None:
        parts.append(f"oldest {format_elapsed_short(overview.oldest)}")
    return Text.assemble(*parts)


# ---------------------------------------------------------------- health


SILENT_AFTER = 10.0
"""Seconds without a heartbeat of a process to its master, which are due every two seconds."""


def find_failures(node_status: Mapping[str, Any] | None, cluster: Mapping[str, Any]) -> Iterator[str]:
    """What keeps a node from its work; nothing while it starts, reloads, or replaces a process that has ended.

    Args:
        node_status: what its master reports; None: it does not answer.
        cluster: what the database shows, or its error.

    >>> list(find_failures(None, {"error": {"message": "the database does not answer"}}))
    ['no node is running here', 'the database does not answer']
    """
    if node_status is None:
        yield "no node is running here"
    else:
        if node_status["state"] == "stopping":
            yield "the node is stopping"
        for slot in node_status["slots"]:
            yield from _slot_failures(slot)
        for component in node_status.get("components") or ():
            if component["failures"] > 1:
                failed = pluralize(component["failures"], "time")
                yield f"component {component['name']} of the agent has failed {failed} in a row"
    if "error" in cluster:
        yield cluster["error"]["message"]


def _slot_failures(slot: Mapping[str, Any]) -> Iterator[str]:
    if slot["state"] == "BACKOFF":
        yield f"{slot['name']} keeps failing, and is started again after a pause"
    elif slot["state"] == "RUNNING" and (slot.get("silent_for") or 0.0) >= SILENT_AFTER:
        yield f"{slot['name']} has been silent for {format_elapsed_short(slot['silent_for'])}"
