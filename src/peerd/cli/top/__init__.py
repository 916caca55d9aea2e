"""``peerd top``: the cluster on a whole terminal."""

from __future__ import annotations

import sys
from typing import Annotated, Final

from typer import Option

from peerd.cli.arguments import parse_duration_option
from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.errors import CommandError, UsageError

app = new_app()
LEAST_PAUSE: Final = 0.5
"""Seconds."""


@command(app)
def top(
    context: CommandContext,
    every: Annotated[str, Option(metavar="DURATION", help="The pause between two readings; 500ms or more.")] = "2s",
) -> None:
    """Show running tasks, queues, nodes and alerts on the whole terminal; sort, filter and act on them.

    It works in any terminal, so also over ssh, and on a server with --server. The key ? shows the others.
    """
    pause = parse_duration_option("--every", every)
    if pause < LEAST_PAUSE:
        raise UsageError(f"--every: {every} is too short", "500ms is the least")
    if context.as_json:
        remedy = "peerd status --json has the same figures"
        raise UsageError("peerd top shows a screen, no JSON", remedy)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError("peerd top needs a terminal", "peerd status, tasks watch and stats print lines")
    try:
        from peerd.cli.top.application import TopApplication  # noqa: PLC0415 - Textual, for this command alone
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        raise CommandError("peerd top needs Textual", "pip install 'peerd[top]'") from None
    client = context.client
    application = TopApplication(client, pause, context.server or context.settings.database.masked_url)
    application.run(mouse=False)  # the terminal's own selection works, and a movement sends nothing over ssh
    if application.failure is not None:
        raise application.failure
