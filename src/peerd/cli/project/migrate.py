"""Create the tables, or bring them to what this version needs."""

from __future__ import annotations

from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import CommandContext
from peerd.store.schema.migrate import find_schema_version, migrate, newest
from peerd.store.schema.revisions import SchemaVersion

app = new_app(__doc__)


@command(app)
def migrate_tables(context: CommandContext) -> None:
    """Create the tables, or bring them to what this version needs.

    It may be done while nodes run. It says whether older nodes may go on; where they may not, it refuses to begin
    until they are stopped.
    """
    context.may_create_database = True
    database = context.client.database
    before = find_schema_version(database)
    after = migrate(database)
    schema = find_schema_version(database)
    assert schema is not None
    revision = None if before is None else before.revision
    answer = {
        "before": revision,
        "after": after,
        "newest": newest(),
        "changed": revision != after,
        "oldest": schema.oldest,
    }
    context.answer(answer, _describe_result(revision, after), *_describe_compatibility(before, schema))


def _describe_result(before: str | None, after: str) -> Text:
    if before == after:
        newer = "" if after == newest() else f", newer than this version's {newest()}, which may go on with them"
        return Text(f"the tables are at revision {after} already{newer}")
    if before is None:
        return Text.assemble(("created", "green"), f" the tables, at revision {after}")
    return Text.assemble(("migrated", "green"), f" from revision {before} to {after}")


def _describe_compatibility(before: SchemaVersion | None, schema: SchemaVersion) -> list[Text]:
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
