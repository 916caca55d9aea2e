"""Examinations of a Galera cluster, by way of the one server that we are connected to."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.operate.diagnostics.finding import Finding, Level
from peerd.store.connection.galera import is_member

MIN_MEMBERS: Final = 3
"""Servers of which one may fail: of two, the one that is left does not know whether the other one is dead."""
MAX_PAUSED_SHARE: Final = 0.1
"""The share of the time since the server's start in which all of them waited for the slowest one."""


def members(connection: Connection) -> list[Finding]:
    """The servers of the cluster."""
    if not is_member(connection):
        return []
    size, state = int(_status(connection, "wsrep_cluster_size")), _status(connection, "wsrep_local_state_comment")
    if size < MIN_MEMBERS:
        message = f"{size} server{'s' if size > 1 else ''}: when one fails, nobody can write"
        return [Finding(Level.WARNING, "Galera", message, f"have {MIN_MEMBERS}, or an arbitrator (garbd)")]
    return [Finding(Level.OK, "Galera", f"{size} servers; this one is {state.lower()}")]


def flow_control(connection: Connection) -> list[Finding]:
    """How often the servers wait for the slowest of them."""
    if not is_member(connection):
        return []
    share = float(_status(connection, "wsrep_flow_control_paused"))
    if share < MAX_PAUSED_SHARE:
        return []
    message = f"all servers have waited for the slowest one for {share:.0%} of the time"
    return [
        Finding(Level.WARNING, "Galera", message, "raise wsrep_slave_threads, or look at the slowest server's disk")
    ]


def _status(connection: Connection, name: str) -> str:
    found = connection.execute(sa.text("SHOW GLOBAL STATUS LIKE :name"), {"name": name}).first()
    return "0" if found is None else str(found[1])


EXAMINATIONS: Final = (members, flow_control)
