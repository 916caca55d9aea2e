"""Whether a server has the connections that the cluster may need."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.operate.diagnostics.finding import Finding, Level
from peerd.store.schema.tables import processes

PER_PROCESS: Final = 6
"""Connections of a process in its busiest moments, with the default [database] pool_size."""


def connections_of(connection: Connection, limit: int) -> list[Finding]:
    """Compare the running processes with the server's limit of connections."""
    running = connection.execute(sa.select(sa.func.count()).where(processes.c.ended_at.is_(None))).scalar_one()
    needed = running * PER_PROCESS
    if needed <= limit:
        return [Finding(Level.OK, "connections", f"{running} processes use up to {needed:,}, the server has {limit:,}")]
    message = f"{running} processes may use {needed:,}, and the server has {limit:,}: some would wait for others"
    remedy = "raise max_connections, or run fewer processes (docs/scaling.md)"
    return [Finding(Level.WARNING, "connections", message, remedy)]
