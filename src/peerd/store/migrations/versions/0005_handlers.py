"""What each process can run."""

from __future__ import annotations

from alembic import op

from peerd.store.schema.migrate import run_script

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column."""
    run_script(op.get_bind(), "0005")


def downgrade() -> None:
    """Take it back."""
    op.drop_column("processes", "handlers")
