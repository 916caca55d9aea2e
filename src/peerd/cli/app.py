"""All commands on one screen. A command's module is loaded when it is called: ``peerd --help`` loads none."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from peerd.runtime.process import gc_tuning

NODE, WORK, SETUP = "This node", "The cluster's work", "Setting up"

COMMANDS: Final[dict[str, tuple[str, str, str]]] = {
    # name: module, panel, help (the first line of the module's docstring; a test holds them equal)
    "init": ("peerd.cli.project.init", SETUP, "Begin a project: write peerd.toml and an example module."),
    "check": ("peerd.cli.project.check", SETUP, "Say all that is wrong with the configuration, and how to mend it."),
    "migrate": ("peerd.cli.project.migrate", SETUP, "Create the tables, or bring them to what this version needs."),
    "doctor": ("peerd.cli.project.doctor", SETUP, "Examine the database and the cluster; say what needs a person."),
    "systemd": ("peerd.cli.project.systemd", SETUP, "Print a systemd unit for this node, or write it."),
    "demo": ("peerd.cli.demo", SETUP, "Show two nodes transcode real video, and one of their workers killed."),
    "alerts": ("peerd.cli.project.alerts", SETUP, "Try the hooks that tell people what needs them."),
    "up": ("peerd.cli.node.up", NODE, "Start this node and stay in the foreground."),
    "start": ("peerd.cli.node.start", NODE, "Start this node in the background."),
    "stop": ("peerd.cli.node.stop", NODE, "Stop this node and wait until it has ended."),
    "restart": ("peerd.cli.node.restart", NODE, "Stop this node, and start it again in the background."),
    "reload": ("peerd.cli.node.reload", NODE, "Replace processes of this node one by one, with new code and settings."),
    "scale": ("peerd.cli.node.scale", NODE, "Change how many processes a kind has, until the next start or reload."),
    "status": ("peerd.cli.node.status", NODE, "Show the processes of this node, and the cluster."),
    "logs": ("peerd.cli.node.logs", NODE, "Show the log of this node, and follow it."),
    "enqueue": ("peerd.cli.cluster.enqueue", WORK, "Enqueue a task."),
    "ring": ("peerd.cli.cluster.ring", WORK, "Ring at all nodes, for tasks that were written with SQL."),
    "tasks": ("peerd.cli.tasks", WORK, "List, show, watch, retry, cancel, delete and move tasks."),
    "queues": ("peerd.cli.cluster.queues", WORK, "List, pause and resume queues."),
    "limits": ("peerd.cli.cluster.limits", WORK, "List, set and remove limits of queues and keys."),
    "nodes": ("peerd.cli.cluster.nodes", WORK, "List, drain, undrain and forget nodes."),
    "schedules": ("peerd.cli.cluster.schedules", WORK, "List, show, run, enable and disable schedules."),
}


class LazyCommand(TyperCommand):
    """A command that is loaded when it is called; until then its name and help are all there is."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Load it, and let it read its arguments."""
        return load_command(str(self.name)).make_context(info_name, args, parent=parent, **extra)


class LazyCommandGroup(TyperGroup):
    """The group of the commands in `COMMANDS`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, (_, panel, text) in COMMANDS.items():
            self.add_command(LazyCommand(name, help=text, rich_help_panel=panel))


def load_command(name: str) -> Any:
    """A command, loaded."""
    module, _, _ = COMMANDS[name]
    command = get_command(import_module(module).app)
    command.name = name
    if not gc.isenabled():
        gc_tuning.freeze_and_enable_gc()
    return command


app = typer.Typer(
    cls=LazyCommandGroup,
    name="peerd",
    no_args_is_help=True,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        version = import_module("peerd").__version__
        sys.stdout.write(f"peerd {version}\n")
        raise typer.Exit


@app.callback(
    help="Background work on a cluster of equal machines, with a SQL table for a queue.",
    epilog="Exit status: 0 done, 1 failed, 2 wrong usage, 3 the node could not start, 4 it runs already. "
    "Every command takes --json, and --help says the rest.",
)
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def run() -> None:
    """Run the command line, and leave with its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal that knows ASCII only gets the rest in its letters
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except BrokenPipeError:  # whoever read has had enough, as in `peerd tasks list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
