"""Users, tokens, sessions, failed logins, and the audit log."""

from __future__ import annotations

from alembic import op

from peerd.store.schema.migrate import run_script

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create the tables."""
    run_script(op.get_bind(), "0009")


def downgrade() -> None:
    """Drop them."""
    for table in ("peerd_audit", "peerd_login_failures", "peerd_sessions", "peerd_tokens", "peerd_users"):
        op.drop_table(table)
