"""The state of what an action changes: the columns that matter, read in its transaction, before it and after it."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.schedules import CLUSTER_ROW
from peerd.store.schema.tables import (
    api_tokens,
    bulk_actions,
    disks,
    file_access_keys,
    file_buckets,
    file_classes,
    file_uploads,
    files,
    limits,
    nodes,
    queues,
    schedules,
    stored_schedules,
    tasks,
    users,
)
from peerd.store.tasks.conditions import select_by_id

State = dict[str, Any]

TASK_STATE: Final = tuple(
    tasks.c[name]
    for name in (
        *("queue", "name", "status", "priority", "attempts", "max_attempts", "node_id", "start_at", "finish_at"),
        *("body", "error", "worker_node_id", "unique_key"),
    )
)


def task_state(connection: Connection, task_id: int) -> State | None:
    """Columns of a task, whose row is locked until the transaction ends."""
    if not 0 < task_id < 2**63:
        return None
    statement = sa.select(*TASK_STATE).where(tasks.c.id == task_id).with_for_update()
    return _first(connection, select_by_id(statement))


def queue_state(connection: Connection, name: str) -> State | None:
    """Whether a queue is paused, and until when."""
    return _first(connection, sa.select(queues.c.paused, queues.c.paused_until).where(queues.c.name == name))


def limit_state(connection: Connection, queue: str, key: str) -> State | None:
    """A limit of a queue."""
    columns = (limits.c.running, limits.c.starts, limits.c.period)
    return _first(connection, sa.select(*columns).where(limits.c.queue == queue, limits.c.limit_key == key))


def node_state(connection: Connection, name: str) -> State | None:
    """Whether a node claims tasks."""
    columns = (nodes.c.draining, nodes.c.active, nodes.c.address)
    return _first(connection, sa.select(*columns).where(nodes.c.name == name))


def schedule_state(connection: Connection, name: str) -> State | None:
    """Whether a schedule is disabled by hand."""
    mine = sa.and_(schedules.c.name == name, schedules.c.node_id == CLUSTER_ROW)
    return _first(connection, sa.select(schedules.c.disabled, schedules.c.type).where(mine))


def stored_schedule_state(connection: Connection, name: str) -> State | None:
    """The definition of a schedule that was created at run time."""
    columns = (stored_schedules.c.definition, stored_schedules.c.created_by)
    return _first(connection, sa.select(*columns).where(stored_schedules.c.name == name))


def bulk_state(connection: Connection, bulk_id: int) -> State | None:
    """The state of a bulk action, and how many tasks it has acted on."""
    columns = (bulk_actions.c.action, bulk_actions.c.state, bulk_actions.c.done)
    return _first(connection, sa.select(*columns).where(bulk_actions.c.id == bulk_id))


def user_state(connection: Connection, name: str) -> State | None:
    """A user, without the hash of its password."""
    has_password = users.c.password_hash.is_not(None).label("has_password")
    return _first(connection, sa.select(users.c.role, users.c.disabled, has_password).where(users.c.name == name))


def token_state(connection: Connection, token_id: int) -> State | None:
    """A token, without its digest."""
    columns = (api_tokens.c.name, api_tokens.c.rights, api_tokens.c.queues, api_tokens.c.file_scopes)
    times = (api_tokens.c.expires_at, api_tokens.c.revoked_at)
    return _first(connection, sa.select(*columns, *times).where(api_tokens.c.id == token_id))


def file_state(connection: Connection, bucket: str, key: str) -> State | None:
    """The current version of a file."""
    columns = (files.c.size, files.c.version, files.c.class_name, files.c.blake3)
    joined = sa.select(*columns).join(file_buckets, file_buckets.c.id == files.c.bucket_id)
    is_current = file_buckets.c.name == bucket, files.c.is_current == 1, files.c.file_key == key
    return _first(connection, joined.where(*is_current))


def upload_state(connection: Connection, upload_id: str) -> State | None:
    """Of which file an upload is that has not ended, and what was received of it."""
    columns = (file_buckets.c.name.label("bucket"), file_uploads.c.file_key.label("key"), file_uploads.c.received)
    joined = sa.select(*columns).join(file_buckets, file_buckets.c.id == file_uploads.c.bucket_id)
    return _first(connection, joined.where(file_uploads.c.id == upload_id, file_uploads.c.aborted_at.is_(None)))


def bucket_state(connection: Connection, name: str) -> State | None:
    """The class and the quota of a bucket."""
    columns = (file_buckets.c.class_name, file_buckets.c.quota)
    return _first(connection, sa.select(*columns).where(file_buckets.c.name == name))


def file_class_state(connection: Connection, name: str) -> State | None:
    """How files of a class are kept."""
    columns = (file_classes.c.copies, file_classes.c.durable, file_classes.c.zones)
    return _first(connection, sa.select(*columns).where(file_classes.c.name == name))


def access_key_state(connection: Connection, key_id: str) -> State | None:
    """An access key; its secret is stored nowhere."""
    columns = (file_access_keys.c.name, file_access_keys.c.rights, file_access_keys.c.scopes)
    times = (file_access_keys.c.expires_at, file_access_keys.c.revoked_at)
    return _first(connection, sa.select(*columns, *times).where(file_access_keys.c.id == key_id))


def disk_state(connection: Connection, number: int) -> State | None:
    """What a disk is used for."""
    return _first(connection, sa.select(disks.c.state, disks.c.path).where(disks.c.id == number))


def _first(connection: Connection, statement: sa.Select[Any]) -> State | None:
    row = connection.execute(statement).mappings().first()
    return None if row is None else dict(row)
