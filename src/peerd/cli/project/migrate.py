"""``peerd migrate``."""

from __future__ import annotations

from rich.text import Text

from peerd.cli.command import CommandContext, command, new_app
from peerd.store.schema.migrate import SchemaVersion, find_schema_version, migrate, newest

app = new_app()


@command(app, of_this_machine=True)
def migrate_tables(context: CommandContext) -> None:
    """Create the tables, or migrate them to this version.

    Nodes may keep running. The command prints whether nodes of older versions may continue; if they may not, it starts
    only after they are stopped.
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
    context.print_result(answer, _describe_result(revision, after), *_describe_compatibility(before, schema))


def _describe_result(before: str | None, after: str) -> Text:
    if before == after:
        newer = "" if after == newest() else f", newer than this version's {newest()}, but compatible"
        return Text(f"the tables are at revision {after} already{newer}")
    if before is None:
        return Text.assemble(("created", "green"), f" the tables, at revision {after}")
    return Text.assemble(("migrated", "green"), f" from revision {before} to {after}")


def _describe_compatibility(before: SchemaVersion | None, schema: SchemaVersion) -> list[Text]:
    """The consequences for nodes of older versions."""
    if before is None or before.revision == schema.revision:
        return []
    if schema.oldest <= before.revision:
        return [Text(f"nodes that support revision {schema.oldest} or later continue: upgrade them one by one")]
    warning = f"nodes that do not support revision {schema.oldest} cannot continue: they are refused from now on"
    return [Text(warning, "yellow")]
