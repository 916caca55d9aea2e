"""Schedules: their clocks, and their runs."""

from __future__ import annotations

from alembic import op

from peerd.store.schema.migrate import run_script

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the two tables."""
    run_script(op.get_bind(), "0003")


def downgrade() -> None:
    """Drop them, and what is in them."""
    for table in ("schedule_runs", "schedules"):
        op.drop_table(table)
