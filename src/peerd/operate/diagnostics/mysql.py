"""Examinations of MariaDB, MySQL and Galera clusters; of a cluster, through the one server of the connection."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.units import format_duration
from peerd.operate.diagnostics.connections import connections_of
from peerd.operate.diagnostics.finding import Finding, Level
from peerd.store.connection.mysql import is_member

OLD_TRANSACTION: Final = 60.0
"""Seconds; InnoDB keeps all row versions that a read view this old may see, and every claim walks over them."""
LONG_HISTORY: Final = 100_000
MIN_PACKET: Final = 16 * 1024 * 1024
MIN_GALERA_MEMBERS: Final = 3
"""So many servers outlive the failure of one: of two, the other does not know whether the first is dead."""
MAX_PAUSED_SHARE: Final = 0.1
"""The share of the time since the server's start in which all servers waited for the slowest one."""


def version(connection: Connection) -> list[Finding]:
    """The server's version."""
    version_text = str(_variable(connection, "version"))
    return [Finding(Level.OK, "MariaDB" if "mariadb" in version_text.lower() else "MySQL", version_text)]


def durability(connection: Connection) -> list[Finding]:
    """Whether committed data survives a crash."""
    findings = []
    flush = int(_variable(connection, "innodb_flush_log_at_trx_commit"))
    if flush != 1:
        message = f"is {flush}: a crash of the server may lose about a second of accepted tasks"
        remedy = "set it to 1, unless another server of a Galera cluster has them too"
        findings.append(Finding(Level.WARNING, "innodb_flush_log_at_trx_commit", message, remedy))
    if int(_variable(connection, "log_bin")) and int(_variable(connection, "sync_binlog")) != 1:
        message = "is not 1: after a crash, replicas may lack, or have more, tasks than this server"
        findings.append(Finding(Level.WARNING, "sync_binlog", message, "set sync_binlog = 1"))
    return findings or [Finding(Level.OK, "durability", "what is committed survives a crash")]


def read_only(connection: Connection) -> list[Finding]:
    """Whether the server takes writes."""
    if str(_variable(connection, "read_only")) in ("0", "OFF"):
        return []
    message = "the server takes no writes (read_only is ON): nothing is enqueued or run"
    remedy = "SET GLOBAL read_only = OFF; if it is a replica, [database] url must name the server that it follows"
    return [Finding(Level.PROBLEM, "read-only", message, remedy)]


def packet(connection: Connection) -> list[Finding]:
    """The maximum size of a task's body."""
    limit = int(_variable(connection, "max_allowed_packet"))
    if limit >= MIN_PACKET:
        return []
    message = f"bodies and results above {limit // 1024:,} KiB are refused by the server"
    return [Finding(Level.NOTE, "max_allowed_packet", message, "raise max_allowed_packet if yours are larger")]


def history(connection: Connection) -> list[Finding]:
    """The row versions that InnoDB keeps for open read views."""
    statement = "SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'"
    length = int(connection.execute(sa.text(statement)).scalar() or 0)
    if length < LONG_HISTORY:
        return [Finding(Level.OK, "history list", f"{length:,} old row versions are kept")]
    message = f"{length:,} old row versions are kept: claims walk over them, and are several times slower"
    remedy = "end the oldest transaction (below), then wait for the purge"
    return [Finding(Level.WARNING, "history list", message, remedy)]


def transactions(connection: Connection) -> list[Finding]:
    """The oldest open transaction."""
    oldest = connection.execute(
        sa.text(
            "SELECT trx.trx_mysql_thread_id AS session, timestampdiff(SECOND, trx.trx_started, now()) AS age,"
            " session.user, session.host, session.command"
            " FROM information_schema.innodb_trx trx"
            " LEFT JOIN information_schema.processlist session ON session.id = trx.trx_mysql_thread_id"
            " WHERE trx.trx_mysql_thread_id <> connection_id() ORDER BY trx.trx_started LIMIT 1"
        )
    ).first()
    if oldest is None or oldest.age < OLD_TRANSACTION:
        return [Finding(Level.OK, "transactions", "none is open for long")]
    session = f"session {oldest.session} ({oldest.user}@{oldest.host}, {oldest.command})"
    message = f"{session} has one open for {format_duration(oldest.age)}: it slows every claim from second to second"
    return [Finding(Level.WARNING, "transactions", message, f"let it end, or: KILL {oldest.session}")]


def galera_members(connection: Connection) -> list[Finding]:
    """The servers of the cluster."""
    if not is_member(connection):
        return []
    size, state = int(_status(connection, "wsrep_cluster_size")), _status(connection, "wsrep_local_state_comment")
    if size < MIN_GALERA_MEMBERS:
        message = f"{size} server{'s' if size > 1 else ''}: when one fails, nothing can be written"
        return [Finding(Level.WARNING, "Galera", message, f"have {MIN_GALERA_MEMBERS}, or an arbitrator (garbd)")]
    return [Finding(Level.OK, "Galera", f"{size} servers; this one is {state.lower()}")]


def galera_flow_control(connection: Connection) -> list[Finding]:
    """How often the servers wait for the slowest of them."""
    if not is_member(connection):
        return []
    share = float(_status(connection, "wsrep_flow_control_paused"))
    if share < MAX_PAUSED_SHARE:
        return []
    message = f"all servers have waited for the slowest one for {share:.0%} of the time"
    remedy = "raise wsrep_slave_threads, or check the slowest server's disk"
    return [Finding(Level.WARNING, "Galera", message, remedy)]


def connections(connection: Connection) -> list[Finding]:
    """The connections that the processes may use."""
    return connections_of(connection, int(_variable(connection, "max_connections")))


def _variable(connection: Connection, name: str) -> Any:
    return connection.execute(sa.text(f"SELECT @@global.{name}")).scalar_one()


def _status(connection: Connection, name: str) -> str:
    found = connection.execute(sa.text("SHOW GLOBAL STATUS LIKE :name"), {"name": name}).first()
    return "0" if found is None else str(found[1])


EXAMINATIONS: Final = (
    *(version, read_only, durability, packet, history, transactions, connections),
    *(galera_members, galera_flow_control),
)
SLOWDOWN_EXAMINATIONS: Final = (history, transactions, galera_flow_control)
