"""Start this node and stay in the foreground."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from peerd.assembly.plan import plan
from peerd.cli.command import command, new_app
from peerd.cli.desk import Desk
from peerd.store.migrate import migrate, require_newest
from peerd.supervision.master import exec_master

app = new_app(__doc__)


@command(app)
def up(
    desk: Desk,
    migrate_first: Annotated[
        bool, typer.Option("--migrate", help="Create or migrate the tables first.", show_default=False)
    ] = False,
) -> None:
    """Start this node and stay in the foreground.

    It stops in good order at Ctrl-C, SIGTERM or `peerd stop`; at once when asked twice.
    Exit status: 0 it was stopped, 1 it may not start (configuration, database), 3 a process could not start,
    4 it runs already.
    """
    settings = desk.settings
    database = desk.client.database
    if migrate_first:
        migrate(database)
    require_newest(database)
    database.close()
    os.environ.update(desk.environment)
    exec_master(plan(settings))
