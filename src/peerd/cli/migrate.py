"""Create the tables, or bring them to what this version needs."""

from __future__ import annotations

from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.desk import Desk
from peerd.store.migrate import current, migrate, newest

app = new_app(__doc__)


@command(app)
def migrate_tables(desk: Desk) -> None:
    """Create the tables, or bring them to what this version needs."""
    database = desk.client.database
    before = current(database)
    after = migrate(database)
    answer = {"before": before, "after": after, "newest": newest(), "changed": before != after}
    if before == after:
        text = Text(f"the tables are at revision {after} already")
    elif before is None:
        text = Text.assemble(("created", "green"), f" the tables, at revision {after}")
    else:
        text = Text.assemble(("migrated", "green"), f" from revision {before} to {after}")
    desk.answer(answer, text)
