"""Ring at all nodes, for tasks that were written with SQL."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import CommandContext
from peerd.cli.errors import CommandError

app = new_app(__doc__)

QueuesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[QUEUE]...", help="Names of queues; none: any.", show_default=False)
]


@command(app)
def ring(context: CommandContext, queues: QueuesArgument = None) -> None:
    """Ring at all nodes, for tasks that were written with SQL.

    What peerd itself enqueues is rung for without it. A ring that is lost costs the time to the next poll, so there is
    no answer that says who has heard it.
    """
    names = queues or []
    context.client.ring(*names)
    if not context.client.notifier.flush() or context.client.notifier.last_error:
        raise CommandError(
            f"nobody was rung at: {context.client.notifier.last_error or 'the database does not answer'}"
        )
    if context.client.notifier.has_no_secret:
        raise CommandError(
            "nobody was rung at: there is no secret", "give the nodes and this machine [cluster] secret_file"
        )
    context.answer({"rung": names}, Text(f"rung for {', '.join(names) or 'any queue'}"))
