"""The table of all commands. A command's module is imported when the command runs; ``peerd --help`` imports none."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Any, Final

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from peerd.runtime.process import interpreter

NODE, WORK, SETUP, ACCESS = "This node", "The cluster's work", "Setting up", "Access"

COMMANDS: Final[dict[str, tuple[str, str, str]]] = {
    # name: module, panel, help (the first paragraph of the command's own help; a test compares them)
    "init": ("project.init", SETUP, "Create a project: write peerd.toml and an example module."),
    "check": (
        "project.check",
        SETUP,
        "Check the configuration, and what it names; list every problem with its remedy.",
    ),
    "migrate": ("project.migrate", SETUP, "Create the tables, or migrate them to this version."),
    "doctor": ("project.doctor", SETUP, "Examine the database and the cluster; list what needs attention."),
    "systemd": ("project.systemd", SETUP, "Print a systemd unit for this node, or write it to a file."),
    "demo": ("demo", SETUP, "Show two nodes that transcode video while one of their workers is killed."),
    "up": ("node.lifecycle", NODE, "Start this node and stay in the foreground."),
    "start": ("node.lifecycle", NODE, "Start this node in the background."),
    "stop": ("node.lifecycle", NODE, "Stop this node and wait until it has ended."),
    "restart": ("node.lifecycle", NODE, "Stop this node, and start it again in the background."),
    "reload": (
        "node.reload",
        NODE,
        "Replace processes of this node one by one, with new code and settings; with --node, of another one.",
    ),
    "scale": (
        "node.reload",
        NODE,
        "Change the number of processes of a kind, until the next start or reload; with --node, of another node.",
    ),
    "status": ("node.status", NODE, "Show the processes of this node, and the cluster."),
    "metrics": ("node.metrics", NODE, "Print this node's metrics in the text format of Prometheus."),
    "logs": (
        "node.logs",
        NODE,
        "Show the end of this node's log, and follow it; or search what the handlers of all nodes have logged.",
    ),
    "enqueue": ("cluster.enqueue", WORK, "Enqueue a task."),
    "ring": ("cluster.enqueue", WORK, "Ring all nodes' doorbells, after tasks were inserted with SQL."),
    "tasks": (
        "tasks",
        WORK,
        "List, show, watch, retry, cancel, bury, kick, snooze, delete, move and change tasks; read their stacks.",
    ),
    "bulk": ("tasks.bulk", WORK, "List, show, watch, pause, resume and cancel bulk actions."),
    "queues": ("cluster.queues", WORK, "List, pause and resume queues."),
    "limits": ("cluster.limits", WORK, "List, set and remove limits of queues and keys."),
    "nodes": ("cluster.nodes", WORK, "List, show, drain, undrain and forget nodes."),
    "alerts": ("cluster.alerts", WORK, "List alerts, and test the hooks that deliver them."),
    "stats": (
        "cluster.statistics",
        WORK,
        "Show throughput, failures, and wait and run times, by queue, handler or node.",
    ),
    "errors": (
        "cluster.statistics",
        WORK,
        "Show what fails most: failed attempts, crashes and time-outs among them, by handler and kind of error.",
    ),
    "top": (
        "top",
        WORK,
        "Show running tasks, queues, nodes and alerts on the whole terminal; sort, filter and act on them.",
    ),
    "files": (
        "files",
        WORK,
        "Put, get, list, show, move, remove and check files; buckets, classes, disks, access keys and uploads.",
    ),
    "schedules": ("cluster.schedules", WORK, "List, show, create, delete, run, enable and disable schedules."),
    "users": ("access", ACCESS, "List, add, change and remove users of the API."),
    "tokens": ("access", ACCESS, "List, create and revoke tokens of the API."),
    "audit": ("audit", ACCESS, "Show what was done by which user, token or program, the newest first."),
}


class LazyCommand(TyperCommand):
    """A command with only a name and a help text until it runs."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Import the command and parse its arguments."""
        return load_command(str(self.name)).make_context(info_name, args, parent=parent, **extra)


class LazyCommandGroup(TyperGroup):
    """The group of the commands in `COMMANDS`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, (_, panel, text) in COMMANDS.items():
            self.add_command(LazyCommand(name, help=text, rich_help_panel=panel))


def load_command(name: str) -> Any:
    """Import a command: a module's only one, one of several, or the module's whole group."""
    command = get_command(import_module(f"peerd.cli.{COMMANDS[name][0]}").app)
    command = getattr(command, "commands", {}).get(name, command)
    command.name = name
    if not gc.isenabled():
        interpreter.freeze_and_enable_gc()
    return command


app = typer.Typer(
    cls=LazyCommandGroup,
    name="peerd",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        sys.stdout.write(f"peerd {import_module('peerd').__version__}\n")
        raise typer.Exit


@app.callback(
    help="Background work on a cluster of equal machines, with a SQL table for a queue.",
    epilog="Exit status: 0 done, 1 failed, 2 wrong usage, 3 the node cannot start, 4 the node is running already. "
    "Every command has --json; COMMAND --help shows its options.",
)
def _root(
    version: bool = Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def run() -> None:
    """Run the command line and exit with its status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal that takes only ASCII gets escapes for the rest
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except BrokenPipeError:  # the reader has closed the pipe, as in `peerd tasks list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
