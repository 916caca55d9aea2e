"""Examinations of MariaDB and MySQL."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.duration import format_duration
from peerd.operate.diagnostics.finding import Finding, Level, check_version, version_numbers

OLD_TRANSACTION: Final = 60.0
"""Seconds; a read view that old keeps InnoDB from forgetting, and every claim walks over what it keeps."""
LONG_HISTORY: Final = 100_000
MIN_PACKET: Final = 16 * 1024 * 1024


def version(connection: Connection) -> list[Finding]:
    """The server's version."""
    version_text = str(_variable(connection, "version"))
    if "mariadb" in version_text.lower():
        return [check_version("MariaDB", version_numbers(version_text), (10, 6), version_text)]
    return [
        check_version("MySQL", version_numbers(version_text), (8, 0), version_text),
        Finding(Level.NOTE, "MySQL", "peerd is written for it, and tested on MariaDB", "tell us what you meet"),
    ]


def durability(connection: Connection) -> list[Finding]:
    """Whether what is committed survives a crash."""
    findings = []
    flush = int(_variable(connection, "innodb_flush_log_at_trx_commit"))
    if flush != 1:
        findings.append(
            Finding(
                Level.WARNING,
                "innodb_flush_log_at_trx_commit",
                f"is {flush}: a crash of the server may lose about a second of accepted tasks",
                "set it to 1, unless another server of a Galera cluster has them too",
            )
        )
    if int(_variable(connection, "log_bin")) and int(_variable(connection, "sync_binlog")) != 1:
        findings.append(
            Finding(
                Level.WARNING,
                "sync_binlog",
                "is not 1: after a crash, replicas may lack, or have more, tasks than this server",
                "set sync_binlog = 1",
            )
        )
    return findings or [Finding(Level.OK, "durability", "what is committed survives a crash")]


def packet(connection: Connection) -> list[Finding]:
    """How large a task's body may be."""
    limit = int(_variable(connection, "max_allowed_packet"))
    if limit >= MIN_PACKET:
        return []
    return [
        Finding(
            Level.NOTE,
            "max_allowed_packet",
            f"bodies and results above {limit // 1024:,} KiB are refused by the server",
            "raise max_allowed_packet if yours are larger",
        )
    ]


def history(connection: Connection) -> list[Finding]:
    """What InnoDB must keep for open read views."""
    length = connection.execute(
        sa.text("SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'")
    ).scalar()
    if length is None or int(length) < LONG_HISTORY:
        return [Finding(Level.OK, "history list", f"{int(length or 0):,} old row versions are kept")]
    return [
        Finding(
            Level.WARNING,
            "history list",
            f"{int(length):,} old row versions are kept: claims walk over them, and are several times slower",
            "end the oldest transaction (below), then wait for the purge",
        )
    ]


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
    who = f"session {oldest.session} ({oldest.user}@{oldest.host}, {oldest.command})"
    return [
        Finding(
            Level.WARNING,
            "transactions",
            f"{who} has one open for {format_duration(oldest.age)}: it makes every claim slower from second to second",
            f"let it end, or: KILL {oldest.session}",
        )
    ]


def _variable(connection: Connection, name: str) -> Any:
    return connection.execute(sa.text(f"SELECT @@global.{name}")).scalar_one()


EXAMINATIONS: Final = (version, durability, packet, history, transactions)
