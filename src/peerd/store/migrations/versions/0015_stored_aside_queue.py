"""On MySQL, `tasks.aside_queue` is stored.

Purge opens a table with an index of a virtual column. On Galera, an `ALTER TABLE` by any server can end that with an
error, which MariaDB 10.11 tries again without an end, and with more memory each time.
"""

from __future__ import annotations

from alembic import op

from peerd.store.schema.migrate import run_script

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Store it, which rewrites the table."""
    run_script(op.get_bind(), "0015")


def downgrade() -> None:
    """Make it virtual again."""
    run_script(op.get_bind(), "0015_back")
