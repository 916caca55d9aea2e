"""Examinations of PostgreSQL."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.units import format_duration
from peerd.operate.diagnostics.connections import connections_of
from peerd.operate.diagnostics.finding import Finding, Level
from peerd.store.connection.postgresql import has_pooler

OLD_TRANSACTION: Final = 60.0
MANY_DEAD: Final = 100_000


def version(connection: Connection) -> list[Finding]:
    """The server's version."""
    version_text = _setting(connection, "server_version")
    return [Finding(Level.OK, "PostgreSQL", version_text)]


def durability(connection: Connection) -> list[Finding]:
    """Whether committed data survives a crash."""
    findings = []
    if _setting(connection, "fsync") != "on":
        message = "is off: a crash of the machine may damage the whole database"
        findings.append(Finding(Level.PROBLEM, "fsync", message, "set fsync = on"))
    if _setting(connection, "synchronous_commit") == "off":
        message = "is off: a crash may lose accepted tasks of the last moments"
        remedy = "set synchronous_commit = on, for peerd's user at least: ALTER ROLE peerd SET synchronous_commit = on"
        findings.append(Finding(Level.WARNING, "synchronous_commit", message, remedy))
    return findings or [Finding(Level.OK, "durability", "what is committed survives a crash")]


def read_only(connection: Connection) -> list[Finding]:
    """Whether the server takes writes."""
    is_replica = connection.execute(sa.text("SELECT pg_is_in_recovery()")).scalar_one()
    if not is_replica and _setting(connection, "default_transaction_read_only") == "off":
        return []
    cause = "it is a replica" if is_replica else "default_transaction_read_only is on"
    remedy = "name the primary in [database] url" if is_replica else "set default_transaction_read_only = off"
    message = f"the server takes no writes ({cause}): nothing is enqueued or run"
    return [Finding(Level.PROBLEM, "read-only", message, remedy)]


def vacuum(connection: Connection) -> list[Finding]:
    """Dead rows in the table of tasks."""
    row = connection.execute(
        sa.text(
            "SELECT n_live_tup AS live, n_dead_tup AS dead FROM pg_stat_user_tables"
            " WHERE schemaname = ANY (current_schemas(false)) AND relname = 'tasks'"
        )
    ).first()
    if _setting(connection, "autovacuum") != "on":
        message = "is off: dead rows stay, and every claim walks over them"
        return [Finding(Level.WARNING, "autovacuum", message, "set autovacuum = on")]
    if row is not None and row.dead > MANY_DEAD and row.dead > row.live:
        message = f"{row.dead:,} dead rows beside {row.live:,} living ones: claims are slower than they need be"
        remedy = "end old transactions (below), then: VACUUM tasks"
        return [Finding(Level.WARNING, "vacuum", message, remedy)]
    return [Finding(Level.OK, "vacuum", f"{0 if row is None else row.dead:,} dead rows in tasks")]


def transactions(connection: Connection) -> list[Finding]:
    """The oldest open transaction."""
    oldest = connection.execute(
        sa.text(
            "SELECT pid, usename, client_addr, application_name, state,"
            " extract(epoch FROM clock_timestamp() - xact_start) AS age FROM pg_stat_activity"
            " WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND datname = current_database()"
            " AND backend_type = 'client backend' ORDER BY xact_start LIMIT 1"
        )
    ).first()
    if oldest is None or oldest.age < OLD_TRANSACTION:
        return [Finding(Level.OK, "transactions", "none is open for long")]
    session = (
        f"process {oldest.pid} ({oldest.usename}, {oldest.application_name or oldest.client_addr}, {oldest.state})"
    )
    message = f"{session} has one open for {format_duration(round(oldest.age))}: dead rows cannot be removed meanwhile"
    remedy = f"let it end, or: SELECT pg_terminate_backend({oldest.pid})"
    return [Finding(Level.WARNING, "transactions", message, remedy)]


def prepared(connection: Connection) -> list[Finding]:
    """The oldest prepared transaction, which belongs to no session."""
    oldest = connection.execute(
        sa.text(
            "SELECT gid, extract(epoch FROM clock_timestamp() - prepared) AS age FROM pg_prepared_xacts"
            " WHERE database = current_database() ORDER BY prepared LIMIT 1"
        )
    ).first()
    if oldest is None or oldest.age < OLD_TRANSACTION:
        return []
    age = format_duration(round(oldest.age))
    message = f"the prepared transaction {oldest.gid!r} is {age} old: dead rows cannot be removed meanwhile"
    return [Finding(Level.WARNING, "transactions", message, f"COMMIT PREPARED {oldest.gid!r}, or ROLLBACK PREPARED")]


def connections(connection: Connection) -> list[Finding]:
    """The connections that the processes may use."""
    if has_pooler(connection.info):  # whose limits it does not tell
        return []
    return connections_of(connection, int(_setting(connection, "max_connections")))


def _setting(connection: Connection, name: str) -> str:
    return str(connection.execute(sa.text("SELECT current_setting(:name)"), {"name": name}).scalar_one())


EXAMINATIONS: Final = (version, read_only, durability, vacuum, transactions, prepared, connections)
SLOWDOWN_EXAMINATIONS: Final = (vacuum, transactions, prepared)
