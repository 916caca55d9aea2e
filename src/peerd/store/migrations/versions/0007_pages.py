"""Pages of ended and of scheduled tasks in the order of their index.

The indexes end with the id, as those of MySQL do by themselves. Without it, PostgreSQL would sort all rows of one time
for each page: a million tasks that one statement has canceled.
"""

from __future__ import annotations

from alembic import op

from peerd.store.schema.migrate import run_script

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Append the id."""
    run_script(op.get_bind(), "0007")


def downgrade() -> None:
    """Take it off."""
    run_script(op.get_bind(), "0007_back")
