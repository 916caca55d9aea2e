"""Ring at all nodes, for tasks that were written with SQL."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import Desk
from peerd.cli.errors import Failure

app = new_app(__doc__)

Queues = Annotated[
    list[str] | None, typer.Argument(metavar="[QUEUE]...", help="Names of queues; none: any.", show_default=False)
]


@command(app)
def ring(desk: Desk, queues: Queues = None) -> None:
    """Ring at all nodes, for tasks that were written with SQL.

    What peerd itself enqueues is rung for without it. A ring that is lost costs the time to the next poll, so there is
    no answer that says who has heard it.
    """
    names = queues or []
    desk.client.ring(*names)
    if not desk.client.ringer.flush() or desk.client.ringer.last_error:
        raise Failure(f"nobody was rung at: {desk.client.ringer.last_error or 'the database does not answer'}")
    if desk.client.ringer.is_mute:
        raise Failure("nobody was rung at: there is no secret", "give the nodes and this machine [cluster] secret_file")
    desk.answer({"rung": names}, Text(f"rung for {', '.join(names) or 'any queue'}"))
