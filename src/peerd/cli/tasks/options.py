"""Options that several commands of tasks share."""

from __future__ import annotations

from typing import Annotated

import typer

_PANEL = "Which tasks"

QueueOption = Annotated[
    str | None, typer.Option("--queue", "-q", metavar="QUEUE", rich_help_panel=_PANEL, help="Of a queue.")
]
NameOption = Annotated[
    str | None, typer.Option("--name", "-n", metavar="NAME", rich_help_panel=_PANEL, help="Of a handler.")
]
StatusOption = Annotated[
    str | None, typer.Option("--status", "-s", metavar="STATUS", rich_help_panel=_PANEL, help="Of a status.")
]
NodeOption = Annotated[
    str | None,
    typer.Option(
        "--node", metavar="NODE", rich_help_panel=_PANEL, help="Pinned to a node, or held by it (now or last)."
    ),
]
BeforeOption = Annotated[
    int | None, typer.Option("--before", metavar="ID", rich_help_panel=_PANEL, help="Older than a task.")
]
