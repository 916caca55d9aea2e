"""The database's own record of a run: triggers that write down each change of a task, in the change's own transaction.

The order of `seq` is, for one task, the order of its writes: each is made while its row is locked. A touch is left out,
because it changes neither status nor holder; what was touched last stands beside each change as `checked_at`.
Times are seconds since 1970 by the database's clock, at the moment of the write.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from peerd.store.schema.types import MYSQL
from tests.faults.jobs import LEDGER
from tests.support.servers import as_admin

metadata = sa.MetaData()
BIG: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("seq", BIG, primary_key=True, autoincrement=True),
    sa.Column("at", sa.Double(), nullable=False),
    sa.Column("what", sa.String(10), nullable=False),
    sa.Column("task_id", sa.BigInteger(), nullable=False),
    sa.Column("old_status", sa.String(10)),
    sa.Column("new_status", sa.String(10)),
    sa.Column("old_lease", sa.BigInteger()),
    sa.Column("new_lease", sa.BigInteger()),
    sa.Column("old_attempts", sa.Integer()),
    sa.Column("new_attempts", sa.Integer()),
    sa.Column("process_id", sa.BigInteger()),
    sa.Column("worker_node_id", sa.Integer()),
    sa.Column("crashes", sa.Integer()),
    sa.Column("node_id", sa.Integer()),
    sa.Column("start_at", sa.Double()),
    sa.Column("finish_at", sa.Double()),
    sa.Column("checked_at", sa.Double()),
    sa.Column("details", sa.Text()),
    mysql_engine="InnoDB",
    mysql_charset="utf8mb4",
)
"""`what`: insert, update, delete of a task. `checked_at` is as it was before the change.
`details`: of an insert the body, of an update the result."""

kept_attempts = sa.Table(
    "kept_attempts",
    metadata,
    sa.Column("task_id", sa.BigInteger(), nullable=False),
    sa.Column("lease", sa.BigInteger(), nullable=False),
    sa.Column("outcome", sa.String(20), nullable=False),
    sa.Column("number", sa.Integer(), nullable=False),
    sa.Column("process_id", sa.BigInteger()),
    sa.Column("error", sa.Text()),
    sa.Column("cause", sa.Text()),
    mysql_engine="InnoDB",
    mysql_charset="utf8mb4",
)
"""The rows of ``attempts``, which outlive their tasks here: a task that expires takes its own with it."""

BOTH: Final = ("status", "lease", "attempts")
"""Columns of which the old value and the new one are kept."""
NEWEST: Final = ("process_id", "worker_node_id", "crashes", "node_id")
TIMES: Final = ("start_at", "finish_at")
NOTED: Final = ("status", "lease", "process_id", "attempts", "crashes", "node_id", "result")
"""Columns whose change is written down."""


def install(engine: Engine) -> None:
    """Make the table, the triggers, and the ledger of the handlers, in a database that has peerd's tables."""
    with sa.create_engine(as_admin(engine.url), poolclass=sa.NullPool).begin() as connection:
        metadata.create_all(connection)
        LEDGER.metadata.create_all(connection)
        name = "mysql" if connection.dialect.name in MYSQL else connection.dialect.name
        for statement in TRIGGERS[name]:
            connection.exec_driver_sql(statement)


def _insert(what: str, now: str, seconds: str) -> str:
    """The INSERT of a trigger.

    Args:
        what: insert, update or delete.
        now: the SQL of the present moment, in seconds.
        seconds: the SQL of a time in seconds, with a place for the column.
    """
    row = "OLD" if what == "delete" else "NEW"
    values = {"at": now, "what": f"'{what}'", "task_id": f"{row}.id"}
    for column in BOTH:
        values[f"old_{column}"] = "NULL" if what == "insert" else f"OLD.{column}"
        values[f"new_{column}"] = "NULL" if what == "delete" else f"NEW.{column}"
    values |= {column: f"{row}.{column}" for column in NEWEST}
    values |= {column: seconds.format(f"{row}.{column}") for column in TIMES}
    values["checked_at"] = "NULL" if what == "insert" else seconds.format("OLD.checked_at")
    values["details"] = {"insert": "NEW.body", "update": "NEW.result", "delete": "NULL"}[what]
    return f"INSERT INTO audit ({', '.join(values)}) VALUES ({', '.join(values.values())})"


def _keep() -> str:
    """The INSERT of the trigger that keeps attempts."""
    columns = [column.name for column in kept_attempts.c]
    return f"INSERT INTO kept_attempts ({', '.join(columns)}) VALUES ({', '.join(f'NEW.{name}' for name in columns)})"


def _changed(differs: str) -> str:
    """That a column of those has changed."""
    return " OR ".join(differs.format(f"OLD.{column}", f"NEW.{column}") for column in NOTED)


def _on_sqlite() -> list[str]:
    now, seconds = "(julianday('now') - 2440587.5) * 86400.0", "(julianday({}) - 2440587.5) * 86400.0"
    when = {"update": f"WHEN {_changed('{} IS NOT {}')}"}
    return [
        f"CREATE TRIGGER audit_attempt AFTER INSERT ON attempts BEGIN {_keep()}; END",
        *(
            f"CREATE TRIGGER audit_{what} AFTER {what.upper()} ON tasks {when.get(what, '')} "
            f"BEGIN {_insert(what, now, seconds)}; END"
            for what in ("insert", "update", "delete")
        ),
    ]


def _on_mysql() -> list[str]:
    now, seconds = "UNIX_TIMESTAMP(SYSDATE(6))", "UNIX_TIMESTAMP({})"
    change = f"IF {_changed('NOT ({} <=> {})')} THEN {_insert('update', now, seconds)}; END IF"
    bodies = {"insert": _insert("insert", now, seconds), "update": change, "delete": _insert("delete", now, seconds)}
    return [
        f"CREATE TRIGGER audit_attempt AFTER INSERT ON attempts FOR EACH ROW {_keep()}",
        *(
            f"CREATE TRIGGER audit_{what} AFTER {what.upper()} ON tasks FOR EACH ROW {body}"
            for what, body in bodies.items()
        ),
    ]


def _on_postgresql() -> list[str]:
    now, seconds = "extract(epoch FROM clock_timestamp())", "extract(epoch FROM {})"
    when = {"update": f"WHEN ({_changed('{} IS DISTINCT FROM {}')})"}
    statements = [
        f"CREATE FUNCTION audit_attempt() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {_keep()}; RETURN NULL; END $$",
        "CREATE TRIGGER audit_attempt AFTER INSERT ON attempts FOR EACH ROW EXECUTE FUNCTION audit_attempt()",
    ]
    for what in ("insert", "update", "delete"):
        statements.append(
            f"CREATE FUNCTION audit_{what}() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN {_insert(what, now, seconds)}; RETURN NULL; END $$"
        )
        statements.append(
            f"CREATE TRIGGER audit_{what} AFTER {what.upper()} ON tasks FOR EACH ROW {when.get(what, '')} "
            f"EXECUTE FUNCTION audit_{what}()"
        )
    return statements


TRIGGERS: Final = {"sqlite": _on_sqlite(), "mysql": _on_mysql(), "postgresql": _on_postgresql()}
