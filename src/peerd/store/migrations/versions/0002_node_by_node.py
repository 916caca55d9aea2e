"""What upgrading node by node needs: which code may work with the tables, and what each node's code knows."""

from __future__ import annotations

from alembic import op

from peerd.store.schema.migrate import run_script

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the two columns."""
    run_script(op.get_bind(), "0002")


def downgrade() -> None:
    """Drop them."""
    op.drop_column("nodes", "revision")
    op.drop_column("peerd_version", "oldest")
