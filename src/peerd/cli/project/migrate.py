"""Create the tables, or bring them to what this version needs."""

from __future__ import annotations

from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import Desk
from peerd.store.schema.migrate import look, migrate, newest
from peerd.store.schema.revisions import Schema

app = new_app(__doc__)


@command(app)
def migrate_tables(desk: Desk) -> None:
    """Create the tables, or bring them to what this version needs.

    It may be done while nodes run. It says whether older nodes may go on; where they may not, it refuses to begin
    until they are stopped.
    """
    desk.makes_database = True
    database = desk.client.database
    before = look(database)
    after = migrate(database)
    schema = look(database)
    assert schema is not None
    revision = None if before is None else before.revision
    answer = {
        "before": revision,
        "after": after,
        "newest": newest(),
        "changed": revision != after,
        "oldest": schema.oldest,
    }
    desk.answer(answer, _done(revision, after), *_who_may_go_on(before, schema))


def _done(before: str | None, after: str) -> Text:
    if before == after:
        newer = "" if after == newest() else f", newer than this version's {newest()}, which may go on with them"
        return Text(f"the tables are at revision {after} already{newer}")
    if before is None:
        return Text.assemble(("created", "green"), f" the tables, at revision {after}")
    return Text.assemble(("migrated", "green"), f" from revision {before} to {after}")


def _who_may_go_on(before: Schema | None, schema: Schema) -> list[Text]:
    """What this means for the nodes of the version before."""
    if before is None or before.revision == schema.revision:
        return []
    if before.oldest is None:
        return [
            Text(
                f"nodes of before revision {newest()} go on, but can start no process anew: upgrade them soon", "yellow"
            )
        ]
    if schema.oldest is not None and schema.oldest <= before.revision:
        return [Text(f"older nodes may go on: those that know revision {schema.oldest} or later; upgrade one by one")]
    return [
        Text(f"nodes that do not know revision {schema.oldest} may not go on: they are refused from now on", "yellow")
    ]
