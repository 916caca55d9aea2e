"""``peerd demo``: two nodes on this machine, and tasks that transcode real video."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

from rich.text import Text
from typer import Option

from peerd.cli.arguments import parse_duration_option
from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.demo.dashboard import HOST, require_dashboard
from peerd.cli.demo.sandbox import DemoSandbox
from peerd.cli.demo.script import DemoScript
from peerd.cli.errors import CommandError, UsageError

app = new_app()


@command(app, of_this_machine=True)
def demo(
    context: CommandContext,
    clip: Annotated[
        Path | None,
        Option("--input", metavar="FILE", help="A video of your own.", exists=True, dir_okay=False),
    ] = None,
    folder: Annotated[
        Path | None, Option(metavar="DIR", help="Keep all files in DIR; default: a new temporary folder.")
    ] = None,
    tasks: Annotated[int, Option(metavar="N", min=2, max=50, help="The number of transcodes.")] = 6,
    timeout: Annotated[str, Option(metavar="DURATION", help="Give up after this time.")] = "10m",
    is_open: Annotated[
        bool, Option("--open", help="Serve the dashboard, and keep the nodes running until Ctrl-C.")
    ] = False,
    port: Annotated[
        int | None,
        Option(metavar="N", min=1, max=65535, help="The port of the dashboard; default: a free one."),
    ] = None,
) -> None:
    """Show two nodes that transcode video while one of their workers is killed.

    In a temporary folder, on SQLite or on --database: starts two nodes, enqueues transcodes of a real clip, kills a
    worker process with SIGKILL, and shows that another process finishes its task. Exit status: 0 all tasks are done
    and the killed worker's task was finished, 1 otherwise.

    With --open, one of the nodes serves the dashboard on 127.0.0.1, and its address is printed. After the summary the
    nodes go on, with a few new tasks a minute, until Ctrl-C or SIGTERM; then they stop, and a temporary folder is
    removed. It needs the extra dashboard.
    """
    timeout_seconds = parse_duration_option("--timeout", timeout)
    if is_open:
        require_dashboard(port)
    elif port is not None:
        raise UsageError("--port is the port of the dashboard", "add --open")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the nodes are stopped in order
    url = context.environment.get("PEERD_DATABASE_URL")
    dashboard = f"{HOST}:{port or 0}" if is_open else None  # for 0, the system chooses a free port
    with DemoSandbox.create(folder, url, dashboard) as sandbox:
        script = DemoScript(context, sandbox, clip=clip, count=tasks, timeout=timeout_seconds, is_open=is_open)
        if not script.run():
            raise CommandError("the demo did not end as expected", f"read the nodes' logs in {sandbox.folder}")
    if is_open and not context.as_json:
        outcome = "was removed" if sandbox.is_removed else "stays"
        context.out.print(Text(f"The nodes have stopped; the folder {sandbox.folder} {outcome}."), soft_wrap=True)
