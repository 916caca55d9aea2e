"""The first tables, in the SQL of each database."""

from __future__ import annotations

from alembic import op

from peerd.store.schema.migrate import run_script

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    run_script(op.get_bind(), "0001")


def downgrade() -> None:
    """Drop all tables, and what is in them."""
    for table in ("unique_keys", "queues", "processes", "nodes", "attempts", "tasks"):
        op.drop_table(table)
