"""Start this node and stay in the foreground."""

from __future__ import annotations

import os
import signal
import sys
from importlib.util import find_spec
from typing import Annotated

import typer
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import CommandContext
from peerd.cli.errors import CommandError
from peerd.cli.node.preflight import MigrateOption, prepare_database
from peerd.entrypoints.node_plan import build_node_plan
from peerd.supervision.host.launch import exec_master

app = new_app(__doc__)


@command(app)
def up(
    context: CommandContext,
    migrate_first: MigrateOption = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Reload what runs code that has changed; for development.", show_default=False),
    ] = False,
) -> None:
    """Start this node and stay in the foreground.

    It stops in good order at Ctrl-C, SIGTERM or `peerd stop`; at once when asked twice.
    Exit status: 0 it was stopped, 1 it may not start (configuration, database), 3 a process could not start,
    4 it runs already.
    """
    if os.getpid() == 1:  # of a container: the kernel gives it no signal that it does not handle
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if watch:
        _require_watchfiles()
    settings = context.settings
    prepare_database(context, migrate_first=migrate_first)
    if settings.logging.file is not None:
        context.err.print(Text(f"the log goes to {settings.logging.file}"), soft_wrap=True)
    os.environ.update(context.environment)
    exec_master(build_node_plan(settings, watch=watch))


def _require_watchfiles() -> None:
    """Refuse to watch without the library that does it.

    Raises:
        Failure: it is not installed.
    """
    if find_spec("watchfiles") is None:
        raise CommandError("peerd up --watch needs the package watchfiles", "pip install 'peerd[watch]'")
