"""The tables, as docs/schema.md explains them. The migrations are held equal to this page by a test."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import expression
from sqlalchemy.sql.schema import HasConditionalDDL

from peerd.domain.lifecycle import FINISHED, Status
from peerd.domain.schedule import RunStatus
from peerd.domain.task import DEFAULT_PRIORITY, PRIORITY_RANGE
from peerd.store.types import MYSQL, SQLITE_FORM, Instant, big_key, binary, long_text, name_type, short_text

ELSEWHERE: Final = ("postgresql", "sqlite")
"""The databases that have partial indexes."""

Conditional = TypeVar("Conditional", bound=HasConditionalDDL)

OPTIONS: Final[dict[str, Any]] = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}

metadata = sa.MetaData()


class default_now(expression.FunctionElement[Any]):  # noqa: N801 - it reads as a function in DDL
    """A column's default: the moment of the insert."""

    inherit_cache = True
    name = "default_now"


@compiles(default_now, "mysql")
@compiles(default_now, "mariadb")
def _default_on_mysql(element: default_now, compiler: Any, **options: Any) -> str:
    return "current_timestamp(6)"


@compiles(default_now, "postgresql")
def _default_on_postgresql(element: default_now, compiler: Any, **options: Any) -> str:
    return "clock_timestamp()"


@compiles(default_now, "sqlite")
def _default_on_sqlite(element: default_now, compiler: Any, **options: Any) -> str:
    return f"(strftime('{SQLITE_FORM}', 'now'))"


class updated_now(default_now):  # noqa: N801 - as above
    """The same, and on MySQL the moment of every later update too."""

    inherit_cache = True
    name = "updated_now"


@compiles(updated_now, "mysql")
@compiles(updated_now, "mariadb")
def _updated_on_mysql(element: updated_now, compiler: Any, **options: Any) -> str:
    return "current_timestamp(6) ON UPDATE current_timestamp(6)"


def words(values: Iterable[str]) -> str:
    """SQL literals of words of ours.

    >>> words(["done", "dead"])
    "'done', 'dead'"
    """
    return ", ".join(f"'{value}'" for value in values)


def only_on(dialects: Iterable[str], item: Conditional) -> Conditional:
    """An index or a constraint that only these databases have."""
    names = frozenset(dialects)

    def has_it(*_: Any, dialect: Dialect, **__: Any) -> bool:
        return dialect.name in names

    return item.ddl_if(callable_=has_it)


def time(name: str) -> sa.Column[Any]:
    """A moment, or null."""
    return sa.Column(name, Instant(), nullable=True)


def filled_time(name: str, default: type[default_now] = default_now) -> sa.Column[Any]:
    """A moment that begins as the one of the insert."""
    return sa.Column(name, Instant(), nullable=False, server_default=default())


def time_forms(*columns: str) -> list[sa.CheckConstraint]:
    """Times are text on SQLite, and compare as times only in one form."""
    return [only_on(["sqlite"], sa.CheckConstraint(time_form(column), name=f"{column}_form")) for column in columns]


def time_form(column: str) -> str:
    """That a column is null, or a time in the one form."""
    return f"{column} IS NULL OR {column} IS strftime('{SQLITE_FORM}', {column})"


def one_of(column: str, values: Iterable[str]) -> sa.CheckConstraint:
    """A text column holds one of these words; on MySQL an ENUM does that."""
    return only_on(ELSEWHERE, sa.CheckConstraint(f"{column} IN ({words(values)})", name=f"{column}_known"))


def choice(values: Iterable[str]) -> sa.types.TypeEngine[str]:
    """ENUM on MySQL (a byte in each index entry), text with `one_of` elsewhere."""
    on_mysql = mysql.ENUM(*(str(value) for value in values), charset="ascii", collation="ascii_bin")
    return sa.Text().with_variant(on_mysql, *MYSQL)


LANE = "CASE WHEN crashes > 0 THEN -1 - COALESCE(node_id, 0) ELSE COALESCE(node_id, 0) END"
CLOSING_AT = (
    "CASE WHEN status = 'pending' THEN finish_at "
    f"WHEN status IN ({words(FINISHED)}) THEN COALESCE(finished_at, updated_at) END"
)
PENDING = "status = 'pending'"
WORKING = "status = 'working'"
DUE = f"status IN ({words([Status.SCHEDULED, Status.FAILURE])})"

tasks = sa.Table(
    "tasks",
    metadata,
    sa.Column("id", big_key(), primary_key=True, autoincrement=True),
    sa.Column("queue", name_type(200, ascii_only=True), nullable=False),
    sa.Column("name", name_type(200), nullable=False, server_default=""),
    sa.Column("body", long_text()),
    sa.Column("body_bytes", binary()),
    sa.Column("status", choice(Status), nullable=False, server_default=Status.PENDING),
    sa.Column("priority", sa.BigInteger(), nullable=False, server_default=str(DEFAULT_PRIORITY)),
    sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"),
    sa.Column("max_attempts", sa.Integer()),
    sa.Column("crashes", sa.Integer(), nullable=False, server_default="0"),
    sa.Column("node_id", sa.Integer()),
    time("start_at"),
    time("finish_at"),
    sa.Column("timeout", sa.Double()),
    sa.Column("unique_key", name_type(200)),
    sa.Column("lease", sa.BigInteger(), nullable=False, server_default="0"),
    sa.Column("claim_token", sa.BigInteger()),
    sa.Column("worker_node_id", sa.Integer()),
    sa.Column("process_id", sa.BigInteger()),
    time("worker_started_at"),
    time("checked_at"),
    sa.Column("progress", sa.Double()),
    sa.Column("progress_note", short_text(255)),
    sa.Column("result", long_text()),
    sa.Column("error", long_text()),
    time("finished_at"),
    sa.Column("trace_context", short_text(512)),
    filled_time("created_at"),
    filled_time("updated_at", updated_now),
    sa.Column("lane", sa.Integer(), sa.Computed(LANE, persisted=True)),
    sa.Column("claim_rank", sa.BigInteger(), sa.Computed("-priority", persisted=True)),
    sa.Column("due_at", Instant(generated=True), sa.Computed("COALESCE(start_at, created_at)", persisted=True)),
    sa.Column("closing_at", Instant(generated=True), sa.Computed(CLOSING_AT, persisted=True)),
    one_of("status", Status),
    sa.CheckConstraint("length(queue) BETWEEN 1 AND 200", name="queue_length"),
    sa.CheckConstraint(f"priority >= {PRIORITY_RANGE[0]}", name="priority_range"),
    *time_forms("start_at", "finish_at", "worker_started_at", "checked_at", "finished_at", "created_at", "updated_at"),
    sqlite_autoincrement=True,
    postgresql_with={"fillfactor": "80"},
    **OPTIONS,
)

ORDER = (tasks.c.claim_rank, tasks.c.attempts, tasks.c.due_at, tasks.c.id)
"""The order of a claim, and of its index."""


def index_elsewhere(name: str, *columns: sa.ColumnElement[Any], where: str) -> sa.Index:
    """A partial index, on the databases that have them."""
    condition = sa.text(where)
    return only_on(ELSEWHERE, sa.Index(name, *columns, postgresql_where=condition, sqlite_where=condition))


only_on(MYSQL, sa.Index("tasks_claim", tasks.c.status, tasks.c.queue, tasks.c.lane, *ORDER))
only_on(MYSQL, sa.Index("tasks_due", tasks.c.status, tasks.c.due_at))
only_on(MYSQL, sa.Index("tasks_closing", tasks.c.status, tasks.c.closing_at))

index_elsewhere("tasks_claim", tasks.c.queue, tasks.c.lane, *ORDER, where=PENDING)
index_elsewhere("tasks_due", tasks.c.status, tasks.c.due_at, where=DUE)
index_elsewhere("tasks_ahead", tasks.c.start_at, where=f"{PENDING} AND start_at IS NOT NULL")
index_elsewhere("tasks_closing", tasks.c.status, tasks.c.closing_at, where="closing_at IS NOT NULL")
index_elsewhere("tasks_working", tasks.c.process_id, where=WORKING)

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("id", big_key(), primary_key=True, autoincrement=True),
    sa.Column("task_id", sa.BigInteger(), nullable=False),
    sa.Column("lease", sa.BigInteger(), nullable=False),
    sa.Column("number", sa.Integer(), nullable=False),
    sa.Column("node_id", sa.Integer()),
    sa.Column("process_id", sa.BigInteger()),
    time("started_at"),
    filled_time("ended_at"),
    sa.Column("outcome", name_type(20, ascii_only=True), nullable=False),
    sa.Column("error", long_text()),
    sa.Column("traceback", long_text()),
    sa.Column("cause", short_text(255)),
    sa.UniqueConstraint("task_id", "lease", name="attempts_claim"),
    *time_forms("started_at", "ended_at"),
    sqlite_autoincrement=True,
    **OPTIONS,
)

nodes = sa.Table(
    "nodes",
    metadata,
    sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
    sa.Column("name", name_type(200), nullable=False),
    sa.Column("incarnation", name_type(32, ascii_only=True)),
    sa.Column("address", short_text(255)),
    sa.Column("zone", short_text(100)),
    sa.Column("version", short_text(50)),
    sa.Column("active", sa.Boolean(), nullable=False, server_default=sa.false()),
    sa.Column("draining", sa.Boolean(), nullable=False, server_default=sa.false()),
    time("started_at"),
    time("checked_at"),
    filled_time("created_at"),
    sa.Column("revision", name_type(32, ascii_only=True)),
    sa.UniqueConstraint("name", name="nodes_name"),
    *time_forms("started_at", "checked_at", "created_at"),
    sqlite_autoincrement=True,
    **OPTIONS,
)

processes = sa.Table(
    "processes",
    metadata,
    sa.Column("id", big_key(), primary_key=True, autoincrement=True),
    sa.Column("node_id", sa.Integer(), nullable=False),
    sa.Column("incarnation", name_type(32, ascii_only=True), nullable=False),
    sa.Column("kind", name_type(100), nullable=False),
    sa.Column("slot", name_type(100), nullable=False),
    sa.Column("role", name_type(20, ascii_only=True), nullable=False),
    sa.Column("pid", sa.Integer(), nullable=False),
    filled_time("started_at"),
    filled_time("checked_at"),
    time("ended_at"),
    sa.Column("cause", short_text(255)),
    sa.Index("processes_node", "node_id", "ended_at"),
    *time_forms("started_at", "checked_at", "ended_at"),
    sqlite_autoincrement=True,
    **OPTIONS,
)

queues = sa.Table(
    "queues",
    metadata,
    sa.Column("name", name_type(200, ascii_only=True), primary_key=True),
    sa.Column("paused", sa.Boolean(), nullable=False, server_default=sa.false()),
    time("paused_until"),
    filled_time("created_at"),
    filled_time("updated_at", updated_now),
    *time_forms("paused_until", "created_at", "updated_at"),
    **OPTIONS,
)

SCOPES = ("unfinished", "period", "forever")

unique_keys = sa.Table(
    "unique_keys",
    metadata,
    sa.Column("queue", name_type(200, ascii_only=True), primary_key=True),
    sa.Column("unique_key", name_type(200), primary_key=True),
    sa.Column("task_id", sa.BigInteger()),
    sa.Column("token", sa.BigInteger(), nullable=False),
    sa.Column("scope", choice(SCOPES), nullable=False),
    time("expires_at"),
    filled_time("created_at"),
    sa.Index("unique_keys_expires", "expires_at"),
    one_of("scope", SCOPES),
    *time_forms("expires_at", "created_at"),
    **OPTIONS,
)

schedules = sa.Table(
    "schedules",
    metadata,
    sa.Column("name", name_type(200), primary_key=True),
    sa.Column("node_id", sa.Integer(), primary_key=True, autoincrement=False),
    sa.Column("type", name_type(200), nullable=False),
    sa.Column("definition", long_text(), nullable=False),
    sa.Column("fingerprint", name_type(32, ascii_only=True), nullable=False),
    sa.Column("incarnation", name_type(32, ascii_only=True)),
    sa.Column("disabled", sa.Boolean(), nullable=False, server_default=sa.false()),
    sa.Column("turn", sa.BigInteger(), nullable=False, server_default="0"),
    time("anchor_at"),
    time("next_at"),
    time("last_at"),
    sa.Column("error", long_text()),
    filled_time("created_at"),
    filled_time("updated_at", updated_now),
    *time_forms("anchor_at", "next_at", "last_at", "created_at", "updated_at"),
    **OPTIONS,
)

schedule_runs = sa.Table(
    "schedule_runs",
    metadata,
    sa.Column("id", big_key(), primary_key=True, autoincrement=True),
    sa.Column("schedule", name_type(200), nullable=False),
    filled_time("tick_at"),
    sa.Column("origin", name_type(20, ascii_only=True), nullable=False, server_default="hand"),
    sa.Column("number", sa.Integer(), nullable=False, server_default="1"),
    sa.Column("args", long_text()),
    sa.Column("status", name_type(20, ascii_only=True), nullable=False, server_default=RunStatus.WAITING),
    sa.Column("node_id", sa.Integer()),
    sa.Column("incarnation", name_type(32, ascii_only=True)),
    sa.Column("slot", name_type(100)),
    sa.Column("pid", sa.Integer()),
    sa.Column("task_id", sa.BigInteger()),
    sa.Column("error", long_text()),
    sa.Column("traceback", long_text()),
    filled_time("created_at"),
    time("started_at"),
    time("finished_at"),
    sa.Index("schedule_runs_schedule", "schedule", "id"),
    sa.Index("schedule_runs_status", "status", "schedule"),
    sa.Index("schedule_runs_finished", "finished_at"),
    *time_forms("tick_at", "created_at", "started_at", "finished_at"),
    sqlite_autoincrement=True,
    **OPTIONS,
)
