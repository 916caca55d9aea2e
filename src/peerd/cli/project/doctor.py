"""``peerd doctor``."""

from __future__ import annotations

from collections import Counter

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.output import finding_lines, pluralize
from peerd.config import Settings
from peerd.operate.diagnostics import Finding, Level
from peerd.runtime.process.process_context import DOORBELL_ACTION
from peerd.store.schema.migrate import find_schema_version, newest
from peerd.supervision import control_client
from peerd.workers.video.errors import ToolsMissing
from peerd.workers.video.programs.ffmpeg_tools import find_tools

app = new_app()


@command(app)
def doctor(context: CommandContext) -> None:
    """Examine the database and the cluster; list what needs attention.

    Each finding has its remedy. With --server, this machine and its doorbell are left out. Exit status 1 if there is
    a problem, 0 if there are only warnings.
    """
    if context.server is not None:
        findings = context.client.examine()
    else:
        findings = [*_check_tables(context), *_check_doorbell(context), *_check_video_tools(context.settings)]
    answer = {"ok": not any(finding.level is Level.PROBLEM for finding in findings), "findings": findings}
    context.print_result(answer, _render_findings(findings))
    if not answer["ok"]:
        raise typer.Exit(1)


def _check_tables(context: CommandContext) -> list[Finding]:
    """The revision of the schema; if it is the right one, the findings about the cluster."""
    database = context.client.database
    found = find_schema_version(database)
    if found is None:
        if database.name == "sqlite":
            return [Finding(Level.NOTE, "tables", "do not exist yet; they are created at the first use")]
        return [Finding(Level.PROBLEM, "tables", "do not exist", "peerd migrate")]
    if found.is_incompatible:
        state = f"are at revision {found.revision}, with which this version ({newest()}) cannot work"
        return [Finding(Level.PROBLEM, "tables", state, "install the version of peerd that migrated them")]
    if found.is_older:
        state = f"are at revision {found.revision}, this version needs {newest()}"
        return [Finding(Level.PROBLEM, "tables", state, "peerd migrate")]
    finding = Finding(Level.OK, "tables", f"at revision {found.revision}")
    if found.is_newer:
        state = f"at revision {found.revision}, newer than this version's {newest()}, but compatible"
        finding = Finding(Level.NOTE, "tables", state, "upgrade this node at any time")
    return [finding, *context.client.examine(max_update=context.settings.manager.max_update)]


def _check_doorbell(context: CommandContext) -> list[Finding]:
    """The doorbell of the node that runs here; without a node, whether tasks enqueued here ring."""
    try:
        doorbell = control_client.call_agent(context.settings.node.run_directory, DOORBELL_ACTION, timeout=2.0)
    except (control_client.MasterNotRunning, control_client.CommandRefused):
        return _check_secret(context)
    found = []
    if doorbell["works"]:
        found.append(Finding(Level.OK, "doorbell", f"works by {doorbell['transport']}"))
    else:
        message = f"does not work, so workers poll: {doorbell['reason']}"
        found.append(Finding(Level.WARNING, "doorbell", message, "see docs/doorbell.md"))
    if doorbell["refused"]:
        counted = "; ".join(f"{count} because {why}" for why, count in doorbell["refused"].items())
        message = f"rings were refused: {counted}; the last one: {doorbell['last_refused']}"
        remedy = "give all nodes and applications the same secret, and set their clocks by NTP"
        found.append(Finding(Level.NOTE, "doorbell", message, remedy))
    return found


def _check_secret(context: CommandContext) -> list[Finding]:
    if not context.client.notifier.has_no_secret:
        return []
    message = (
        "there is no [cluster] secret: tasks enqueued with this configuration do not ring and wait for a poll,"
        " up to 12.5 s where the nodes' own doorbell works"
    )
    remedy = "set the nodes' [cluster] secret_file, or PEERD_CLUSTER_SECRET; in code, Client(url, secret=…)"
    return [Finding(Level.WARNING, "doorbell", message, remedy)]


def _check_video_tools(settings: Settings) -> list[Finding]:
    """ffmpeg, if a worker of this node needs it."""
    entries = [
        entry
        for worker in settings.workers.values()
        if worker.enabled
        for entry in (*(worker.tasks or ()), worker.worker or "")
    ]
    if not any(entry.startswith("peerd.workers.video") for entry in entries):
        return []
    try:
        tools = find_tools()
    except ToolsMissing as error:
        return [Finding(Level.PROBLEM, "ffmpeg", str(error), "install ffmpeg, or: pip install 'peerd[video]'")]
    return [Finding(Level.OK, "ffmpeg", f"{tools.version}, {tools.ffmpeg}")]


def _render_findings(findings: list[Finding]) -> RenderableType:
    counted = Counter(finding.level for finding in findings)
    bad = [pluralize(counted[level], level) for level in (Level.PROBLEM, Level.WARNING) if counted[level]]
    return Group(*finding_lines(findings), Text(", ".join(bad), "bold") if bad else Text("no problems", "green"))
