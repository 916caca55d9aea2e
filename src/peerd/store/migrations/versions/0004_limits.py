"""Limits and turns, and on MySQL indexes whose entries move only when they must."""

from __future__ import annotations

from alembic import op

from peerd.store.schema.migrate import run_script
from peerd.store.schema.types import MYSQL

revision = "0004"
down_revision = "0003"

OF_MYSQL = ("claim_queue", "turn_queue", "waiting_as", "closing_as")


def upgrade() -> None:
    """Add the tables, and make the indexes of ``tasks`` anew."""
    run_script(op.get_bind(), "0004")


def downgrade() -> None:
    """Take them back. Tasks with keys go on without them."""
    for table in ("limit_starts", "turns", "limits"):
        op.drop_table(table)
    run_script(op.get_bind(), "0004_back")
    if op.get_bind().dialect.name in MYSQL:
        for column in (*OF_MYSQL, "limit_key"):
            op.drop_column("tasks", column)
    elif op.get_bind().dialect.name == "postgresql":
        op.drop_column("tasks", "limit_key")
