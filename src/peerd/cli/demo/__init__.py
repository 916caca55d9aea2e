"""Show two nodes transcode real video, and one of their workers killed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from peerd.cli.command import command, new_app
from peerd.cli.context import CommandContext
from peerd.cli.demo.sandbox import DemoSandbox
from peerd.cli.demo.script import DemoScript
from peerd.cli.errors import CommandError

app = new_app(__doc__)


@command(app)
def demo(
    context: CommandContext,
    clip: Annotated[
        Path | None,
        typer.Option(
            "--input", metavar="FILE", help="A video of your own.", show_default=False, exists=True, dir_okay=False
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Work and leave the files there, not in a new temporary folder.",
                     show_default=False),
    ] = None,
    tasks: Annotated[int, typer.Option(metavar="N", min=2, max=50, help="Transcodes.")] = 6,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="Give up after this long.")] = "10m",
) -> None:  # fmt: skip
    """Show two nodes transcode real video, and one of their workers killed.

    In a temporary folder, on SQLite or on --database: starts two nodes, enqueues transcodes of a real clip, kills a
    worker process with -9 in the middle, and shows that another process finishes its task.
    Exit status: 0 all is well, 1 it is not.
    """
    with DemoSandbox.create(folder, context.environment.get("PEERD_DATABASE_URL")) as sandbox:
        succeeded = DemoScript(context, sandbox, clip=clip, count=tasks, timeout=timeout).run()
    if not succeeded:
        raise CommandError("the demo did not end as it should", f"read the nodes' logs in {sandbox.folder}")
