"""What Alembic runs: the connection comes from `peerd.store.schema.migrate`."""

from __future__ import annotations

from typing import Any

from alembic import context
from alembic.runtime.migration import MigrationContext

from peerd.store.schema.migrate import version_table, write_oldest_compatible
from peerd.store.schema.tables import metadata


def after_each(ctx: MigrationContext, step: Any, heads: Any, run_args: Any) -> None:  # noqa: ARG001
    """A revision has been carried out. Alembic names the arguments."""
    assert ctx.connection is not None
    write_oldest_compatible(ctx.connection)


connection = context.config.attributes["connection"]
context.configure(
    connection=connection, target_metadata=metadata, version_table=version_table.name, on_version_apply=after_each
)
with context.begin_transaction():
    context.run_migrations()
