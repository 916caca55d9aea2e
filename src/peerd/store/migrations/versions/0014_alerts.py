"""Alerts: which are on, and which were raised lately."""

from __future__ import annotations

from alembic import op

from peerd.store.schema.migrate import run_script

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Create the table."""
    run_script(op.get_bind(), "0014")


def downgrade() -> None:
    """Drop it."""
    op.drop_table("alerts")
