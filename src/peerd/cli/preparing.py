"""What `peerd up`, `start` and `restart` do before there is a node."""

from __future__ import annotations

from typing import Annotated

import typer

from peerd.cli.desk import Desk
from peerd.store.migrate import migrate, require_newest

MigrateFirst = Annotated[
    bool, typer.Option("--migrate", help="Create or migrate the tables first.", show_default=False)
]


def prepare(desk: Desk, *, migrate_first: bool) -> None:
    """See that the tables are there, and hold no connection afterwards.

    Raises:
        PeerdError: they are not, or the database does not answer.
    """
    database = desk.client.database
    if migrate_first:
        migrate(database)
    require_newest(database)
    database.close()
