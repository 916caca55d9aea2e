"""Answers of requests that carry an idempotency key."""

from __future__ import annotations

from alembic import op

from peerd.store.schema.migrate import run_script

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create the table."""
    run_script(op.get_bind(), "0008")


def downgrade() -> None:
    """Drop it."""
    op.drop_table("idempotency_keys")
