"""Log lines of attempts."""

from __future__ import annotations

from alembic import op

from peerd.store.schema.migrate import run_script

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Create the table."""
    run_script(op.get_bind(), "0013")


def downgrade() -> None:
    """Drop it."""
    op.drop_table("task_logs")
