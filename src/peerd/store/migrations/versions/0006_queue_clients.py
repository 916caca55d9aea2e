"""What queue clients need of a task: deadlines, counters, and an index of tasks that are set aside."""

from __future__ import annotations

from alembic import op

from peerd.store.schema.migrate import run_script

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the columns and the index."""
    run_script(op.get_bind(), "0006")


def downgrade() -> None:
    """Take them back. Reservations go on as claims."""
    run_script(op.get_bind(), "0006_back")
