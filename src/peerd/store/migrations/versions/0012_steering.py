"""Requests to nodes, and schedules that are created at run time."""

from __future__ import annotations

from alembic import op

from peerd.store.schema.migrate import run_script

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Create the tables."""
    run_script(op.get_bind(), "0012")


def downgrade() -> None:
    """Drop them."""
    op.drop_table("stored_schedules")
    op.drop_table("node_requests")
