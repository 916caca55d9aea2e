"""``peerd demo``: two nodes on this machine, and tasks that transcode real video."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from peerd.cli.command import command, new_app
from peerd.cli.context import CommandContext
from peerd.cli.demo.sandbox import DemoSandbox
from peerd.cli.demo.script import DemoScript
from peerd.cli.errors import CommandError, parse_duration_option

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
) -> None:
    """Show two nodes that transcode video while one of their workers is killed.

    In a temporary folder, on SQLite or on --database: starts two nodes, enqueues transcodes of a real clip, kills a
    worker process with SIGKILL, and shows that another process finishes its task. Exit status: 0 all tasks are done
    and the killed worker's task was finished, 1 otherwise.
    """
    timeout_seconds = parse_duration_option("--timeout", timeout)
    with DemoSandbox.create(folder, context.environment.get("PEERD_DATABASE_URL")) as sandbox:
        succeeded = DemoScript(context, sandbox, clip=clip, count=tasks, timeout=timeout_seconds).run()
    if not succeeded:
        raise CommandError("the demo did not end as expected", f"read the nodes' logs in {sandbox.folder}")
