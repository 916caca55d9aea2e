"""Bulk actions: one action on all tasks of a filter."""

from __future__ import annotations

from alembic import op

from peerd.store.schema.migrate import run_script

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Create the table."""
    run_script(op.get_bind(), "0011")


def downgrade() -> None:
    """Drop it."""
    op.drop_table("bulk_actions")
