"""Files that survive their servers: classes, buckets, disks, versions, copies, checks, uploads and access keys."""

from __future__ import annotations

from alembic import op

from peerd.store.schema.migrate import run_script

revision = "0016"
down_revision = "0015"

TABLES = (
    "file_cluster",
    "file_classes",
    "file_buckets",
    "file_usage",
    "disks",
    "disk_counts",
    "files",
    "file_chunks",
    "file_copies",
    "file_checks",
    "file_uploads",
    "file_upload_parts",
    "file_completed_uploads",
    "file_access_keys",
)


def upgrade() -> None:
    """Create the tables, and what tokens may do with files."""
    run_script(op.get_bind(), "0016")


def downgrade() -> None:
    """Drop them."""
    op.drop_column("peerd_tokens", "file_scopes")
    for table in TABLES:
        op.drop_table(table)
