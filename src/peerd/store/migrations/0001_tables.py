"""The tables of 0.1.0. A database that Alembic changes has them: an empty one is not migrated, but created."""

from __future__ import annotations

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Change nothing: there is no earlier revision."""
