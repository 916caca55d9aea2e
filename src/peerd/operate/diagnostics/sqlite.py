"""Examinations of SQLite."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sqlalchemy.engine import Connection

from peerd.operate.diagnostics.finding import Finding, Level

LARGE_WAL: Final = 32 * 1024 * 1024
"""Bytes; without readers that stay, the log begins anew after a few MiB."""


def version(connection: Connection) -> list[Finding]:
    """The library's version."""
    version_text = str(connection.exec_driver_sql("SELECT sqlite_version()").scalar_one())
    return [Finding(Level.OK, "SQLite", version_text)]


def journal(connection: Connection) -> list[Finding]:
    """The journal mode, and the size of the write-ahead log."""
    mode = str(connection.exec_driver_sql("PRAGMA journal_mode").scalar_one())
    if mode != "wal":
        message = f"the journal's mode is {mode}: readers and writers wait for each other"
        return [Finding(Level.WARNING, "journal", message, "put the file on a local disk; a network folder has no WAL")]
    file = connection.engine.url.database or ""
    wal = Path(f"{file}-wal")
    size = wal.stat().st_size if wal.exists() else 0
    if size > LARGE_WAL:
        message = f"{size // 2**20:,} MiB are not yet in the main file: a reader has been open for long"
        return [Finding(Level.WARNING, "journal", message, f"find it: fuser -v {file}")]
    return [Finding(Level.OK, "durability", "what is committed survives a crash")]


EXAMINATIONS: Final = (version, journal)
SLOWDOWN_EXAMINATIONS: Final = ()
