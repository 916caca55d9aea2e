"""What Alembic runs: the connection comes from `peerd.store.migrate`."""

from __future__ import annotations

from alembic import context

from peerd.store.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, version_table="peerd_version")
with context.begin_transaction():
    context.run_migrations()
