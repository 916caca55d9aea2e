"""The tables, which docs/schema.md explains. `peerd.store.schema.migrate` makes them in an empty database."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from peerd.domain.access import FileRights, Role
from peerd.domain.attempt_totals import BIN_COUNT, OUTCOMES
from peerd.domain.bulk import BulkState
from peerd.domain.files import MAX_KEY_BYTES, CopyState, DiskKind, DiskState, FileState
from peerd.domain.lifecycle import FINISHED, Status
from peerd.domain.node_request import NodeRequestStatus
from peerd.domain.schedule import RunStatus
from peerd.domain.task import DEFAULT_PRIORITY, PRIORITY_RANGE
from peerd.store.schema.types import (
    BIG_KEY,
    BINARY,
    LONG_TEXT,
    MYSQL,
    ByteText,
    Instant,
    default_now,
    dialect_only_options,
    enum_column,
    enum_type,
    generated_from_times,
    mysql_generated_column,
    name_type,
    only_on,
    partial_index,
    short_text,
    sql_literals,
    time_column,
    time_column_with_default,
    updated_now,
    value_checks,
)

metadata = sa.MetaData(naming_convention={"ck": "%(table_name)s_%(constraint_name)s"})
"""On MySQL the names of CHECKs are unique in a database."""


def _table(name: str, *items: sa.schema.SchemaItem, **info: Any) -> sa.Table:
    columns = [item for item in items if isinstance(item, sa.Column)]
    if any(column.autoincrement is True for column in columns):  # SQLite gives no id again then
        info |= dialect_only_options(["sqlite"], autoincrement=True)
    return sa.Table(
        name,
        metadata,
        *items,
        *value_checks(columns),
        info=info,
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
    )


DUE_AT = generated_from_times("COALESCE(start_at, created_at)")
CLOSING_AT = generated_from_times(
    "CASE WHEN status = 'pending' THEN finish_at "
    f"WHEN status IN ({sql_literals(FINISHED)}) THEN COALESCE(finished_at, updated_at) END"
)
PENDING = "status = 'pending'"
WORKING = "status = 'working'"
DUE = f"status IN ({sql_literals([Status.SCHEDULED, Status.FAILURE])})"
CLAIMABLE = f"{PENDING} AND limit_key IS NULL"
"""Claimed in `CLAIM_ORDER`; tasks with a limit key are claimed by limited claims."""
KEYED = f"{PENDING} AND limit_key IS NOT NULL"

LIMIT_KEY_FORMAT = "limit_key NOT IN ('', '*')"
"""In `limits`, '' is the queue and '*' is each key."""

CLAIM_QUEUE = f"CASE WHEN {CLAIMABLE} THEN queue WHEN {WORKING} THEN '' END"
TURN_QUEUE = f"CASE WHEN {KEYED} THEN queue END"
WAITING_AS = f"CASE WHEN {DUE} OR {PENDING} AND start_at IS NOT NULL THEN status END"
ASIDE = f"status IN ({sql_literals([Status.SCHEDULED, Status.FAILURE, Status.WAITING, Status.BURIED])})"
"""Neither pending nor held nor ended: what queue clients see as delayed or buried."""
ASIDE_QUEUE = f"CASE WHEN {ASIDE} THEN CONCAT(status, ' ', queue) END"
CLOSING_AS = f"CASE WHEN {PENDING} AND finish_at IS NOT NULL OR status IN ({sql_literals(FINISHED)}) THEN status END"

LANE = "CASE WHEN crashes > 0 THEN -1 - COALESCE(node_id, 0) ELSE COALESCE(node_id, 0) END"
"""The lane of a task: 0 for any node, the id of the one it is pinned to, or below 0 after it has crashed a process."""

tasks = _table(
    "tasks",
    sa.Column("id", BIG_KEY, primary_key=True, autoincrement=True),
    sa.Column("queue", name_type(200), nullable=False),
    sa.Column("name", name_type(200), nullable=False, server_default=""),
    sa.Column("body", LONG_TEXT),
    sa.Column("body_bytes", BINARY),
    enum_column("status", Status, nullable=False, server_default=Status.PENDING),
    sa.Column("priority", sa.BigInteger(), nullable=False, server_default=str(DEFAULT_PRIORITY)),
    sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"),
    sa.Column("max_attempts", sa.Integer()),
    sa.Column("failures", sa.Integer(), nullable=False, server_default="0"),
    sa.Column("crashes", sa.Integer(), nullable=False, server_default="0"),
    sa.Column("node_id", sa.Integer()),
    time_column("start_at"),
    time_column("finish_at"),
    sa.Column("timeout", sa.Double()),
    sa.Column("unique_key", name_type(200)),
    sa.Column("lease", sa.BigInteger(), nullable=False, server_default="0"),
    sa.Column("claim_token", sa.BigInteger()),
    sa.Column("worker_node_id", sa.Integer()),
    sa.Column("process_id", sa.BigInteger()),
    time_column("worker_started_at"),
    time_column("checked_at"),
    sa.Column("progress", sa.Double()),
    sa.Column("progress_note", short_text(255)),
    sa.Column("result", LONG_TEXT),
    sa.Column("error", LONG_TEXT),
    time_column("finished_at"),
    sa.Column("trace_context", short_text(512)),
    time_column_with_default("created_at"),
    time_column_with_default("updated_at", updated_now),
    sa.Column("lane", sa.Integer(), sa.Computed(LANE, persisted=True)),
    sa.Column("claim_rank", sa.BigInteger(), sa.Computed("-priority", persisted=True)),
    sa.Column("due_at", Instant(generated=True), sa.Computed(DUE_AT, persisted=True)),
    sa.Column("closing_at", Instant(generated=True), sa.Computed(CLOSING_AT, persisted=True)),
    sa.Column("limit_key", name_type(200)),
    mysql_generated_column("claim_queue", name_type(200), CLAIM_QUEUE),
    mysql_generated_column("turn_queue", name_type(200), TURN_QUEUE),
    mysql_generated_column("waiting_as", enum_type(Status), WAITING_AS),
    mysql_generated_column("closing_as", enum_type(Status), CLOSING_AS),
    sa.Column("ttr", sa.BigInteger()),
    sa.Column("delay", sa.BigInteger()),
    time_column("deadline_at"),
    sa.Column("reserves", sa.Integer()),
    sa.Column("timeouts", sa.Integer()),
    sa.Column("releases", sa.Integer()),
    sa.Column("buries", sa.Integer()),
    sa.Column("kicks", sa.Integer()),
    sa.Column("buried_order", sa.BigInteger()),
    mysql_generated_column("aside_queue", name_type(220), ASIDE_QUEUE),
    sa.Column("bulk_id", sa.BigInteger()),
    sa.CheckConstraint("length(queue) BETWEEN 1 AND 200", name="queue_length"),
    sa.CheckConstraint(f"priority >= {PRIORITY_RANGE[0]}", name="priority_range"),
    sa.CheckConstraint(LIMIT_KEY_FORMAT, name="limit_key_form"),
    **dialect_only_options(["postgresql"], **{"with": {"fillfactor": "80"}}),
)

CLAIM_ORDER = (tasks.c.claim_rank, tasks.c.failures, tasks.c.due_at, tasks.c.id)
"""The order of a claim and of its index."""

KEYED_CLAIM_ORDER = (tasks.c.lane, tasks.c.claim_rank, tasks.c.limit_key, tasks.c.failures, tasks.c.due_at, tasks.c.id)
"""The order of the index of tasks with limit keys: by priority, then key by key."""

ASIDE_ORDER = (tasks.c.buried_order, tasks.c.due_at, tasks.c.id)
"""The order in which tasks are kicked: the longest buried first, or the soonest due. Those without an order come first,
for which PostgreSQL needs words of its own."""

only_on(MYSQL, sa.Index("tasks_claim", tasks.c.claim_queue, tasks.c.lane, *CLAIM_ORDER))
only_on(MYSQL, sa.Index("tasks_turns", tasks.c.turn_queue, *KEYED_CLAIM_ORDER))
only_on(MYSQL, sa.Index("tasks_due", tasks.c.waiting_as, tasks.c.due_at))
only_on(MYSQL, sa.Index("tasks_aside", tasks.c.aside_queue, *ASIDE_ORDER))
only_on(MYSQL, sa.Index("tasks_closing", tasks.c.closing_as, tasks.c.closing_at))

partial_index("tasks_claim", tasks.c.queue, tasks.c.lane, *CLAIM_ORDER, where=CLAIMABLE)
partial_index("tasks_turns", tasks.c.queue, *KEYED_CLAIM_ORDER, where=KEYED)
partial_index("tasks_due", tasks.c.status, tasks.c.due_at, tasks.c.id, where=DUE)
partial_index("tasks_aside", tasks.c.queue, tasks.c.status, *ASIDE_ORDER, where=ASIDE, dialects=("sqlite",))
aside_order_on_postgresql = (tasks.c.buried_order.nulls_first(), *ASIDE_ORDER[1:])
partial_index(
    "tasks_aside",
    tasks.c.queue,
    tasks.c.status,
    *aside_order_on_postgresql,
    where=ASIDE,
    dialects=("postgresql",),
)
partial_index("tasks_ahead", tasks.c.start_at, where=f"{PENDING} AND start_at IS NOT NULL")
partial_index("tasks_closing", tasks.c.status, tasks.c.closing_at, tasks.c.id, where="closing_at IS NOT NULL")
partial_index("tasks_working", tasks.c.process_id, where=WORKING)

attempts = _table(
    "attempts",
    sa.Column("id", BIG_KEY, primary_key=True, autoincrement=True),
    sa.Column("task_id", sa.BigInteger(), nullable=False),
    sa.Column("lease", sa.BigInteger(), nullable=False),
    sa.Column("number", sa.Integer(), nullable=False),
    sa.Column("node_id", sa.Integer()),
    sa.Column("process_id", sa.BigInteger()),
    time_column("started_at"),
    time_column_with_default("ended_at"),
    sa.Column("outcome", name_type(20), nullable=False),
    sa.Column("error", LONG_TEXT),
    sa.Column("traceback", LONG_TEXT),
    sa.Column("cause", short_text(255)),
    sa.UniqueConstraint("task_id", "lease", name="attempts_claim"),
)

nodes = _table(
    "nodes",
    sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
    sa.Column("name", name_type(200), nullable=False),
    sa.Column("incarnation", name_type(32)),
    sa.Column("address", short_text(255)),
    sa.Column("zone", short_text(100)),
    sa.Column("version", short_text(50)),
    sa.Column("active", sa.Boolean(), nullable=False, server_default=sa.false()),
    sa.Column("draining", sa.Boolean(), nullable=False, server_default=sa.false()),
    time_column("started_at"),
    time_column("checked_at"),
    time_column_with_default("created_at"),
    sa.Column("revision", name_type(32)),
    sa.UniqueConstraint("name", name="nodes_name"),
)

processes = _table(
    "processes",
    sa.Column("id", BIG_KEY, primary_key=True, autoincrement=True),
    sa.Column("node_id", sa.Integer(), nullable=False),
    sa.Column("incarnation", name_type(32), nullable=False),
    sa.Column("kind", name_type(100), nullable=False),
    sa.Column("slot", name_type(100), nullable=False),
    sa.Column("role", name_type(20), nullable=False),
    sa.Column("pid", sa.Integer(), nullable=False),
    time_column_with_default("started_at"),
    time_column_with_default("checked_at"),
    time_column("ended_at"),
    sa.Column("cause", short_text(255)),
    sa.Column("handlers", LONG_TEXT),
    sa.Column("slots", sa.Integer()),
    sa.Index("processes_node", "node_id", "ended_at"),
)

queues = _table(
    "queues",
    sa.Column("name", name_type(200), primary_key=True),
    sa.Column("paused", sa.Boolean(), nullable=False, server_default=sa.false()),
    time_column("paused_until"),
    time_column_with_default("created_at"),
    time_column_with_default("updated_at", updated_now),
    sa.Column("pause", sa.BigInteger()),
)

limits = _table(
    "limits",
    sa.Column("queue", name_type(200), primary_key=True),
    sa.Column("limit_key", name_type(200), primary_key=True, server_default=""),
    sa.Column("running", sa.Integer()),
    sa.Column("starts", sa.Integer()),
    sa.Column("period", sa.Double()),
    time_column_with_default("created_at"),
    time_column_with_default("updated_at", updated_now),
    sa.CheckConstraint("running >= 0", name="running_range"),
    sa.CheckConstraint("starts > 0 AND period > 0", name="rate_range"),
    sa.CheckConstraint("(starts IS NULL) = (period IS NULL)", name="rate_whole"),
)

turns = _table(
    "turns",
    sa.Column("queue", name_type(200), primary_key=True),
    sa.Column("turn", sa.BigInteger(), nullable=False, server_default="0"),
    sa.Column("last_key", name_type(200), nullable=False, server_default=""),
)

limit_starts = _table(
    "limit_starts",
    sa.Column("queue", name_type(200), primary_key=True),
    sa.Column("limit_key", name_type(200), primary_key=True),
    sa.Column("turn", sa.BigInteger(), primary_key=True, autoincrement=False),
    sa.Column("starts", sa.Integer(), nullable=False),
    time_column_with_default("started_at"),
    time_column("counts_until"),
    sa.Index("limit_starts_over", "counts_until"),
)

SCOPES = ("unfinished", "period", "forever")

unique_keys = _table(
    "unique_keys",
    sa.Column("queue", name_type(200), primary_key=True),
    sa.Column("unique_key", name_type(200), primary_key=True),
    sa.Column("task_id", sa.BigInteger()),
    sa.Column("token", sa.BigInteger(), nullable=False),
    enum_column("scope", SCOPES, nullable=False),
    time_column("expires_at"),
    time_column_with_default("created_at"),
    sa.Index("unique_keys_expires", "expires_at"),
)

idempotency_keys = _table(
    "idempotency_keys",
    sa.Column("id", name_type(32), primary_key=True),
    sa.Column("request", name_type(32), nullable=False),
    sa.Column("token", sa.BigInteger(), nullable=False),
    sa.Column("answer", LONG_TEXT),
    time_column_with_default("created_at"),
    sa.Index("idempotency_keys_created", "created_at"),
)

schedules = _table(
    "schedules",
    sa.Column("name", name_type(200), primary_key=True),
    sa.Column("node_id", sa.Integer(), primary_key=True, autoincrement=False),
    sa.Column("type", name_type(200), nullable=False),
    sa.Column("definition", LONG_TEXT, nullable=False),
    sa.Column("fingerprint", name_type(32), nullable=False),
    sa.Column("incarnation", name_type(32)),
    sa.Column("disabled", sa.Boolean(), nullable=False, server_default=sa.false()),
    sa.Column("turn", sa.BigInteger(), nullable=False, server_default="0"),
    time_column("anchor_at"),
    time_column("next_at"),
    time_column("last_at"),
    sa.Column("error", LONG_TEXT),
    time_column_with_default("created_at"),
    time_column_with_default("updated_at", updated_now),
)

schedule_runs = _table(
    "schedule_runs",
    sa.Column("id", BIG_KEY, primary_key=True, autoincrement=True),
    sa.Column("schedule", name_type(200), nullable=False),
    time_column_with_default("tick_at"),
    sa.Column("origin", name_type(20), nullable=False, server_default="hand"),
    sa.Column("number", sa.Integer(), nullable=False, server_default="1"),
    sa.Column("args", LONG_TEXT),
    sa.Column("status", name_type(20), nullable=False, server_default=RunStatus.WAITING),
    sa.Column("node_id", sa.Integer()),
    sa.Column("incarnation", name_type(32)),
    sa.Column("slot", name_type(100)),
    sa.Column("pid", sa.Integer()),
    sa.Column("task_id", sa.BigInteger()),
    sa.Column("error", LONG_TEXT),
    sa.Column("traceback", LONG_TEXT),
    time_column_with_default("created_at"),
    time_column("started_at"),
    time_column("finished_at"),
    sa.Index("schedule_runs_schedule", "schedule", "id"),
    sa.Index("schedule_runs_status", "status", "schedule"),
    sa.Index("schedule_runs_finished", "finished_at"),
)

# A prefix, because an application may have users and sessions of its own in the same database.
users = _table(
    "peerd_users",
    sa.Column("name", name_type(200), primary_key=True),
    enum_column("role", Role, nullable=False),
    sa.Column("password_hash", short_text(255)),
    sa.Column("disabled", sa.Boolean(), nullable=False, server_default=sa.false()),
    time_column("logged_in_at"),
    time_column_with_default("created_at"),
    time_column_with_default("updated_at", updated_now),
)

api_tokens = _table(
    "peerd_tokens",
    sa.Column("id", BIG_KEY, primary_key=True, autoincrement=True),
    sa.Column("name", name_type(200), nullable=False),
    sa.Column("prefix", name_type(16), nullable=False),
    sa.Column("hash", name_type(64), nullable=False),
    sa.Column("rights", LONG_TEXT, nullable=False),
    sa.Column("queues", LONG_TEXT),
    time_column("expires_at"),
    time_column("revoked_at"),
    time_column("last_used_at"),
    time_column_with_default("created_at"),
    sa.Column("file_scopes", LONG_TEXT),
    sa.UniqueConstraint("prefix", name="peerd_tokens_prefix"),
)

sessions = _table(
    "peerd_sessions",
    sa.Column("id", name_type(64), primary_key=True),
    sa.Column("user_name", name_type(200), nullable=False),
    sa.Column("address", short_text(255)),
    time_column_with_default("created_at"),
    time_column_with_default("seen_at"),
    sa.Index("peerd_sessions_user", "user_name"),
    sa.Index("peerd_sessions_created", "created_at"),
)

login_failures = _table(
    "peerd_login_failures",
    sa.Column("id", name_type(32), primary_key=True),
    sa.Column("failures", sa.Integer(), nullable=False, server_default="0"),
    time_column_with_default("began_at"),
    time_column("succeeded_at"),
    sa.Index("peerd_login_failures_began", "began_at"),
)

audit = _table(
    "peerd_audit",
    sa.Column("id", BIG_KEY, primary_key=True, autoincrement=True),
    time_column_with_default("at"),
    sa.Column("actor_kind", name_type(20), nullable=False),
    sa.Column("actor", name_type(200), nullable=False),
    sa.Column("address", short_text(255)),
    sa.Column("way", name_type(20), nullable=False),
    sa.Column("operation", name_type(100), nullable=False),
    sa.Column("target_kind", name_type(20)),
    sa.Column("target", name_type(200)),
    sa.Column("arguments", LONG_TEXT),
    sa.Column("state_before", LONG_TEXT),
    sa.Column("state_after", LONG_TEXT),
    sa.Column("outcome", name_type(20), nullable=False),
    sa.Column("problem", LONG_TEXT),
    sa.Index("peerd_audit_at", "at"),
    sa.Index("peerd_audit_actor", "actor", "id"),
    sa.Index("peerd_audit_operation", "operation", "id"),
    sa.Index("peerd_audit_target", "target", "id"),
)

node_requests = _table(
    "node_requests",
    sa.Column("id", BIG_KEY, primary_key=True, autoincrement=True),
    sa.Column("node_id", sa.Integer(), nullable=False),
    sa.Column("incarnation", name_type(32), nullable=False),
    sa.Column("command", name_type(20), nullable=False),
    sa.Column("arguments", LONG_TEXT, nullable=False),
    sa.Column("requested_by", name_type(200)),
    sa.Column("status", name_type(20), nullable=False, server_default=NodeRequestStatus.WAITING),
    sa.Column("result", LONG_TEXT),
    sa.Column("error", LONG_TEXT),
    time_column_with_default("created_at"),
    time_column("expires_at"),
    time_column("taken_at"),
    time_column("finished_at"),
    sa.Index("node_requests_status", "incarnation", "status"),
    sa.Index("node_requests_created", "created_at"),
)

stored_schedules = _table(
    "stored_schedules",
    sa.Column("name", name_type(200), primary_key=True),
    sa.Column("definition", LONG_TEXT, nullable=False),
    sa.Column("created_by", name_type(200)),
    time_column_with_default("created_at"),
)

bulk_actions = _table(
    "bulk_actions",
    sa.Column("id", BIG_KEY, primary_key=True, autoincrement=True),
    sa.Column("action", name_type(20), nullable=False),
    sa.Column("arguments", LONG_TEXT, nullable=False),
    sa.Column("filter", LONG_TEXT, nullable=False),
    sa.Column("highest_id", sa.BigInteger(), nullable=False),
    time_column_with_default("as_of"),
    sa.Column("most", sa.BigInteger()),
    enum_column("state", BulkState, nullable=False, server_default=BulkState.COUNTING),
    sa.Column("matched", sa.BigInteger(), nullable=False, server_default="0"),
    sa.Column("at_least", sa.Boolean(), nullable=False, server_default=sa.false()),
    sa.Column("examined", sa.BigInteger(), nullable=False, server_default="0"),
    sa.Column("done", sa.BigInteger(), nullable=False, server_default="0"),
    sa.Column("skipped", sa.BigInteger(), nullable=False, server_default="0"),
    sa.Column("failed", sa.BigInteger(), nullable=False, server_default="0"),
    sa.Column("errors", LONG_TEXT),
    sa.Column("place", LONG_TEXT),
    sa.Column("postponed", LONG_TEXT),
    time_column("next_at"),
    sa.Column("error", LONG_TEXT),
    sa.Column("created_by", name_type(200)),
    time_column_with_default("created_at"),
    time_column("started_at"),
    time_column_with_default("updated_at", updated_now),
    time_column("finished_at"),
    sa.Index("bulk_actions_state", "state", "updated_at"),
)


def _counter_columns(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.Integer(), nullable=False) for name in names]


def _histogram_columns(name: str) -> list[sa.Column[Any]]:
    """The sum of durations in seconds, and how many there are of each bin of a `Histogram`."""
    bins = _counter_columns(*(f"{name}_{place}" for place in range(BIN_COUNT)))
    return [sa.Column(f"{name}_sum", sa.Double(), nullable=False), *bins]


statistics = _table(
    "statistics",
    sa.Column("step", sa.Integer(), primary_key=True, autoincrement=False),
    sa.Column("at", Instant(), primary_key=True, server_default=default_now()),
    sa.Column("queue", name_type(200), primary_key=True),
    sa.Column("name", name_type(200), primary_key=True),
    sa.Column("node_id", sa.Integer(), primary_key=True, autoincrement=False),
    sa.Column("process_id", sa.BigInteger(), primary_key=True, autoincrement=False),
    *_counter_columns(*OUTCOMES),
    sa.Column("busy", sa.Double(), nullable=False),
    *_histogram_columns("wait"),
    *_histogram_columns("run"),
)

depths = _table(
    "depths",
    sa.Column("step", sa.Integer(), primary_key=True, autoincrement=False),
    sa.Column("at", Instant(), primary_key=True, server_default=default_now()),
    sa.Column("queue", name_type(200), primary_key=True),
    sa.Column("status", name_type(20), primary_key=True),
    sa.Column("count", sa.Integer(), nullable=False),
    sa.Column("at_least", sa.Boolean(), nullable=False, server_default=sa.false()),
    sa.Column("oldest", sa.Double()),
)

task_logs = _table(
    "task_logs",
    sa.Column("task_id", sa.BigInteger(), primary_key=True, autoincrement=False),
    sa.Column("lease", sa.BigInteger(), primary_key=True, autoincrement=False),
    sa.Column("sequence", sa.BigInteger(), primary_key=True, autoincrement=False),
    sa.Column("attempt", sa.Integer(), nullable=False),
    time_column_with_default("at"),
    sa.Column("level", name_type(10), nullable=False),
    sa.Column("logger", short_text(200), nullable=False),
    sa.Column("message", LONG_TEXT, nullable=False),
    sa.Column("fields", LONG_TEXT),
    sa.Index("task_logs_at", "at"),
)
"""The lines that handlers have logged. No foreign key: lines are written beside the outcomes, and later than them."""

alerts = _table(
    "alerts",
    sa.Column("id", BIG_KEY, primary_key=True, autoincrement=True),
    sa.Column("kind", name_type(40), nullable=False),
    sa.Column("subject", name_type(200), nullable=False, server_default=""),
    sa.Column("node", name_type(200), nullable=False),
    sa.Column("slot", name_type(200)),
    sa.Column("pid", sa.Integer()),
    sa.Column("text", LONG_TEXT, nullable=False),
    sa.Column("data", LONG_TEXT),
    sa.Column("times", sa.BigInteger(), nullable=False, server_default="1"),
    time_column_with_default("raised_at"),
    time_column_with_default("last_seen_at"),
    time_column("on_until"),
    time_column("ended_at"),
    sa.Column("open_key", name_type(250)),
    only_on(MYSQL, sa.Index("alerts_on", "on_until")),
    sa.Index("alerts_seen", "last_seen_at"),
    sa.Index("alerts_subject", "kind", "subject", "last_seen_at"),
    sa.Index("alerts_open", "open_key", unique=True),
)
"""``on_until`` is null for incidents and for conditions that have ended, so those that are on are a short range."""
partial_index("alerts_on", alerts.c.on_until, where="on_until IS NOT NULL")

file_cluster = _table(
    "file_cluster",
    sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
    sa.Column("identity", name_type(32), nullable=False),
    time_column_with_default("created_at"),
)
"""One row: the identity that the disks of this cluster have."""

file_classes = _table(
    "file_classes",
    sa.Column("name", name_type(63), primary_key=True),
    sa.Column("copies", sa.Integer(), nullable=False, server_default="2"),
    sa.Column("durable", sa.Integer(), nullable=False, server_default="1"),
    sa.Column("zones", sa.Integer(), nullable=False, server_default="1"),
    sa.Column("object_copies", sa.Integer()),
    time_column_with_default("created_at"),
)

file_buckets = _table(
    "file_buckets",
    sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
    sa.Column("name", name_type(63), nullable=False),
    sa.Column("class_name", name_type(63), nullable=False),
    sa.Column("quota", sa.BigInteger()),
    time_column_with_default("created_at"),
    sa.Index("file_buckets_name", "name", unique=True),
)

file_usage = _table(
    "file_usage",
    sa.Column("bucket_id", sa.Integer(), primary_key=True, autoincrement=False),
    sa.Column("part", sa.Integer(), primary_key=True, autoincrement=False),
    sa.Column("files", sa.BigInteger(), nullable=False, server_default="0"),
    sa.Column("bytes", sa.BigInteger(), nullable=False, server_default="0"),
)
"""The sums of a bucket's current files, in several parts, so that puts do not wait for each other."""

disks = _table(
    "disks",
    sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
    sa.Column("identity", name_type(32), nullable=False),
    enum_column("kind", DiskKind, nullable=False, server_default=DiskKind.FOLDER),
    enum_column("state", DiskState, nullable=False, server_default=DiskState.ACTIVE),
    sa.Column("node_id", sa.Integer()),
    sa.Column("path", short_text(4096), nullable=False),
    sa.Column("url", short_text(500)),
    sa.Column("size", sa.BigInteger(), nullable=False, server_default="0"),
    sa.Column("free", sa.BigInteger(), nullable=False, server_default="0"),
    sa.Column("reserve", sa.BigInteger(), nullable=False, server_default="0"),
    sa.Column("problem", short_text(500)),
    time_column("failed_until"),
    time_column_with_default("created_at"),
    time_column("seen_at"),
    time_column("missing_at"),
    time_column("verified_since"),
    sa.Column("walked_for", name_type(20)),
    sa.Column("walked_to", sa.BigInteger()),
    sa.Column("scrubbed_to", sa.BigInteger()),
    time_column("scrub_started_at"),
    sa.Column("grace", sa.Double()),
    sa.Index("disks_identity", "identity", unique=True),
)

disk_counts = _table(
    "disk_counts",
    sa.Column("disk_id", sa.Integer(), primary_key=True, autoincrement=False),
    enum_column("state", CopyState, primary_key=True),
    sa.Column("copies", sa.BigInteger(), nullable=False),
    sa.Column("bytes", sa.BigInteger(), nullable=False),
    sa.Column("examined", sa.BigInteger(), nullable=False),
    time_column_with_default("counted_at"),
)
"""The copies of each disk by state, as one manager counts them now and then for all that show them."""

files = _table(
    "files",
    sa.Column("id", sa.BigInteger(), primary_key=True, autoincrement=False),
    sa.Column("bucket_id", sa.Integer(), nullable=False),
    sa.Column("file_key", ByteText(MAX_KEY_BYTES), nullable=False),
    sa.Column("version", sa.BigInteger(), nullable=False, server_default="0"),
    enum_column("state", FileState, nullable=False),
    sa.Column("is_current", sa.SmallInteger()),
    sa.Column("class_name", name_type(63), nullable=False),
    sa.Column("size", sa.BigInteger(), nullable=False),
    sa.Column("blake3", name_type(64), nullable=False),
    sa.Column("etag", name_type(80)),
    sa.Column("content_type", short_text(255)),
    sa.Column("metadata", LONG_TEXT),
    sa.Column("headers", LONG_TEXT),
    time_column_with_default("created_at"),
    time_column("expires_at"),
    time_column("deleted_at"),
    sa.Index("files_current", "bucket_id", "is_current", "file_key", unique=True),
    only_on(MYSQL, sa.Index("files_expiring", "expires_at")),
)
"""A row for each version. ``is_current`` is 1 or null, and unique, so that one version of a key is current."""
partial_index("files_expiring", files.c.expires_at, where="expires_at IS NOT NULL")

file_chunks = _table(
    "file_chunks",
    sa.Column("file_id", sa.BigInteger(), primary_key=True, autoincrement=False),
    sa.Column("chunk_size", sa.BigInteger(), nullable=False),
    sa.Column("hashes", BINARY, nullable=False),
)
"""BLAKE3 of each chunk of a content that has more than one."""

file_copies = _table(
    "file_copies",
    sa.Column("file_id", sa.BigInteger(), primary_key=True, autoincrement=False),
    sa.Column("disk_id", sa.Integer(), primary_key=True, autoincrement=False),
    enum_column("state", CopyState, nullable=False),
    sa.Column("size", sa.BigInteger(), nullable=False),
    time_column_with_default("created_at"),
    time_column("verified_at"),
    sa.Column("task_id", sa.BigInteger()),
    sa.Index("file_copies_disk", "disk_id", "state", "file_id", "size"),
)

file_checks = _table(
    "file_checks",
    sa.Column("file_id", sa.BigInteger(), primary_key=True, autoincrement=False),
    sa.Column("danger", sa.SmallInteger(), nullable=False),
    time_column_with_default("due_at"),
    sa.Column("tries", sa.Integer(), nullable=False, server_default="0"),
    sa.Column("health", name_type(20)),
    sa.Column("blocked", short_text(500)),
    time_column_with_default("created_at"),
    time_column_with_default("requested_at"),
    sa.Index("file_checks_due", "danger", "due_at"),
    sa.Index("file_checks_listed", "danger", "health", "created_at", "file_id"),
)
"""The files that are not settled: what they need is decided again when it is due, the most endangered first.

``created_at`` is when it was requested first, ``requested_at`` when last: what was read before that settles nothing.
"""

file_uploads = _table(
    "file_uploads",
    sa.Column("id", name_type(32), primary_key=True),
    sa.Column("bucket_id", sa.Integer(), nullable=False),
    sa.Column("file_key", ByteText(MAX_KEY_BYTES), nullable=False),
    sa.Column("disk_id", sa.Integer(), nullable=False),
    sa.Column("class_name", name_type(63), nullable=False),
    sa.Column("content_type", short_text(255)),
    sa.Column("metadata", LONG_TEXT),
    sa.Column("headers", LONG_TEXT),
    sa.Column("created_by", name_type(200)),
    sa.Column("content_id", sa.BigInteger()),
    sa.Column("size", sa.BigInteger()),
    sa.Column("received", sa.BigInteger(), nullable=False, server_default="0"),
    sa.Column("source", name_type(100)),
    sa.Column("expires_in", sa.Double()),
    sa.Column("put_condition", name_type(100)),
    time_column_with_default("created_at"),
    time_column_with_default("touched_at"),
    time_column("aborted_at"),
    sa.Index("file_uploads_key", "bucket_id", "file_key"),
    sa.Index("file_uploads_touched", "touched_at"),
    only_on(MYSQL, sa.Index("file_uploads_content", "content_id")),
    only_on(MYSQL, sa.Index("file_uploads_aborted", "aborted_at")),
)
"""An upload of S3 has a row for each part. A resumable one has a ``content_id``, and is one part of a content:
``received`` bytes of it are durable, and its parts need no rows. ``aborted_at``: its bytes are still to be removed."""
partial_index("file_uploads_content", file_uploads.c.content_id, where="content_id IS NOT NULL")
partial_index("file_uploads_aborted", file_uploads.c.aborted_at, where="aborted_at IS NOT NULL")

file_upload_parts = _table(
    "file_upload_parts",
    sa.Column("upload_id", name_type(32), primary_key=True),
    sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
    sa.Column("content_id", sa.BigInteger(), nullable=False),
    sa.Column("size", sa.BigInteger(), nullable=False),
    sa.Column("etag", name_type(80), nullable=False),
    sa.Column("checksum", name_type(100)),
    time_column_with_default("created_at"),
    sa.Index("file_upload_parts_content", "content_id"),
)

file_completed_uploads = _table(
    "file_completed_uploads",
    sa.Column("id", name_type(32), primary_key=True),
    sa.Column("bucket_id", sa.Integer(), nullable=False),
    sa.Column("file_key", ByteText(MAX_KEY_BYTES), nullable=False),
    sa.Column("etag", name_type(80), nullable=False),
    time_column_with_default("completed_at"),
    sa.Index("file_completed_uploads_time", "completed_at"),
)
"""What is answered to a client that completes an upload again, because it has lost the first answer."""

file_access_keys = _table(
    "file_access_keys",
    sa.Column("id", name_type(20), primary_key=True),
    sa.Column("name", name_type(200), nullable=False),
    enum_column("rights", FileRights, nullable=False),
    sa.Column("scopes", LONG_TEXT),
    sa.Column("created_by", name_type(200)),
    time_column_with_default("created_at"),
    time_column("expires_at"),
    time_column("revoked_at"),
    time_column("last_used_at"),
)
"""Access keys of S3's clients. The secret of a key is derived from the cluster's secret, and stored nowhere."""
