"""Time series of ended attempts and of the tasks that wait; the slots of each process."""

from __future__ import annotations

from alembic import op

from peerd.store.schema.migrate import run_script

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create the tables, and add the column."""
    run_script(op.get_bind(), "0010")


def downgrade() -> None:
    """Take them back."""
    op.drop_table("depths")
    op.drop_table("statistics")
    op.drop_column("processes", "slots")
