"""``peerd up``, ``start``, ``stop`` and ``restart``."""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from rich.console import Group, RenderableType
from rich.text import Text
from typer import Option

from peerd.cli.arguments import RunDirectoryOption, parse_duration_option
from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.errors import CommandError
from peerd.cli.node.local_node import SlotsTable
from peerd.cli.output import pluralize, sanitize
from peerd.cli.project.code_imports import import_project_code
from peerd.entrypoints.node_plan import build_node_plan
from peerd.runtime.process import exit_codes
from peerd.store.schema.migrate import migrate, require_current_schema
from peerd.supervision import control_client
from peerd.supervision.daemonize import NodeStartError, exec_master, start_in_background

app = new_app()

LOG_TAIL_LINES = 20

MigrateOption = Annotated[bool, Option("--migrate", help="Create or migrate the tables first.")]
FastOption = Annotated[bool, Option("--fast", help="Release running tasks at once, without their grace.")]
StartTimeoutOption = Annotated[str, Option(metavar="DURATION", help="Time to become ready.")]


@command(app, of_this_machine=True)
def up(
    context: CommandContext,
    migrate_first: MigrateOption = False,
    watch: Annotated[
        bool, Option("--watch", help="For development: reload the processes whose code has changed.")
    ] = False,
) -> None:
    """Start this node and stay in the foreground.

    Ctrl-C, SIGTERM and peerd stop finish the running tasks and stop the node; a second signal stops it at once.
    Exit status: 0 stopped, 1 configuration or database invalid, 3 a process cannot start, 4 the node is running
    already.
    """
    if os.getpid() == 1:  # in a container: the kernel delivers to process 1 only signals that it handles
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if watch and find_spec("watchfiles") is None:
        raise CommandError("peerd up --watch needs the package watchfiles", "pip install 'peerd[watch]'")
    settings = context.settings
    _prepare_database(context, migrate_first=migrate_first)
    if settings.logging.file is not None:
        context.err.print(Text(f"the log goes to {settings.logging.file}"), soft_wrap=True)
    os.environ.update(context.environment)
    exec_master(build_node_plan(settings, watch=watch))


@command(app, of_this_machine=True)
def start(context: CommandContext, timeout: StartTimeoutOption = "5m", migrate_first: MigrateOption = False) -> None:
    """Start this node in the background.

    It returns when the node is ready, and shows its processes. The log is logging.file, by default peerd.log in the
    run directory; see peerd logs. Exit status: 0 ready, 1 configuration or database invalid, 3 the node cannot start
    (the cause is printed), 4 the node is running already.
    """
    timeout_seconds = parse_duration_option("--timeout", timeout)
    folder = context.settings.node.run_directory
    pid = control_client.find_running_master(folder)
    if pid is not None:
        raise _already_running(pid, folder)
    _prepare_database(context, migrate_first=migrate_first)
    node_status = _start_in_background(context, timeout_seconds)
    context.print_result({"started": True, "here": node_status}, _render_started(node_status))


@command(app, of_this_machine=True)
def stop(
    context: CommandContext,
    fast: FastOption = False,
    timeout: Annotated[
        str | None, Option(metavar="DURATION", help="Wait at most this long; the node continues to stop.")
    ] = None,
    run_directory: RunDirectoryOption = None,
) -> None:
    """Stop this node and wait until it has ended.

    Running tasks may finish within the node's grace; the rest are released.
    """
    folder = run_directory or context.settings.node.run_directory
    timeout_seconds = None if timeout is None else parse_duration_option("--timeout", timeout)
    try:
        control_client.stop(folder, fast=fast, timeout=timeout_seconds)
    except control_client.MasterNotResponding:
        raise
    except TimeoutError:
        raise _still_stopping(folder, f"the node has not ended within {timeout}", fast=fast) from None
    context.print_result({"stopped": True}, Text("stopped", "green"))


@command(app, of_this_machine=True)
def restart(
    context: CommandContext,
    fast: FastOption = False,
    timeout: StartTimeoutOption = "5m",
    migrate_first: MigrateOption = False,
) -> None:
    """Stop this node, and start it again in the background.

    The configuration, the code and the tables are checked first: while one of them is invalid, the running node is not
    stopped. A node that is not running is started. Changed code or settings need no restart: peerd reload replaces
    processes one by one.
    """
    timeout_seconds = parse_duration_option("--timeout", timeout)
    _require_importable_code(context)
    _prepare_database(context, migrate_first=migrate_first)
    stopped = _stop_if_running(context, fast=fast)
    node_status = _start_in_background(context, timeout_seconds)
    first = Text("stopped", "yellow") if stopped else Text("the node was not running", "bright_black")
    context.print_result(
        {"stopped": stopped, "started": True, "here": node_status}, first, _render_started(node_status)
    )


def _prepare_database(context: CommandContext, *, migrate_first: bool) -> None:
    """Check the tables, and close the connection: the node opens its own."""
    context.may_create_database = True
    database = context.client.database
    if migrate_first:
        migrate(database)
    require_current_schema(database)
    database.close()


def _require_importable_code(context: CommandContext) -> None:
    """Import the code of workers and web sections in another process; the first error is the message."""
    results = import_project_code(context.settings, context.environment, sections=("workers", "web"))
    errors = [
        f"{section.removesuffix('s')} {name}: {result['error']}"
        for (section, name), result in results.items()
        if "error" in result
    ]
    if errors:
        first, *others = errors
        raise CommandError(
            f"cannot start: {first}",
            "fix it, and try again; nothing was stopped",
            log_tail=others,
            status=exit_codes.BOOT_FAILED,
            kind="NodeStartError",
        )


def _start_in_background(context: CommandContext, timeout_seconds: float) -> dict[str, Any]:
    """Start the node, and return its status when it is ready."""
    settings = context.settings
    os.environ.update(context.environment)
    try:
        return start_in_background(build_node_plan(settings, background=True), timeout_seconds)
    except NodeStartError as error:
        if error.status == exit_codes.ALREADY_RUNNING:  # another process has started it at the same moment
            folder = settings.node.run_directory
            raise _already_running(control_client.find_running_master(folder), folder) from error
        raise CommandError(
            f"cannot start: {error}",
            f"peerd check; the whole log is {settings.log_file}",
            log_tail=error.output[-LOG_TAIL_LINES:],
            status=exit_codes.REFUSED if error.status == exit_codes.REFUSED else exit_codes.BOOT_FAILED,
            kind="NodeStartError",
        ) from error


def _render_started(node_status: dict[str, Any]) -> RenderableType:
    summary = f": {pluralize(len(node_status['slots']), 'process')}, master is process {node_status['pid']}"
    return Group(
        Text.assemble(("started ", "green"), (f"node {sanitize(node_status['node'])}", "bold"), summary),
        SlotsTable(node_status["slots"], datetime.now(UTC)),
        Text.assemble(
            ("log: ", "bright_black"), sanitize(str(node_status["log_file"])), ("  (peerd logs -f)", "bright_black")
        ),
    )


def _already_running(pid: int | None, folder: Path) -> CommandError:
    process = f"as process {pid} in {folder}" if pid else f"in {folder}"
    return CommandError(
        f"this node is running already, {process}",
        "peerd status; or peerd restart; another node on this machine needs another [node] name",
        status=exit_codes.ALREADY_RUNNING,
        kind="AlreadyRunning",
    )


def _still_stopping(folder: Path, message: str, *, fast: bool) -> CommandError:
    try:
        node_status = control_client.status(folder)
    except control_client.MasterNotRunning:
        return CommandError(message, "peerd status: it has ended since")
    busy = [slot["name"] for slot in node_status["slots"] if slot["pid"] or slot["leaving"]]
    remedy = (
        f"kill -9 {node_status['pid']}: the node's processes then end by themselves" if fast else "peerd stop --fast"
    )
    return CommandError(f"{message}; it is still stopping and waits for {sanitize(', '.join(busy))}", remedy)


def _stop_if_running(context: CommandContext, *, fast: bool) -> bool:
    """Stop the node, and return whether it was running; refused for a node in the foreground."""
    folder = context.settings.node.run_directory
    try:
        node_status = control_client.status(folder)
        if not node_status["background"]:
            raise CommandError(
                f"this node was not started in the background (its master is process {node_status['pid']})",
                "restart it where it was started: systemctl restart, or Ctrl-C and peerd up",
            )
        control_client.stop(folder, fast=fast)
    except control_client.MasterNotRunning:
        return False
    return True
