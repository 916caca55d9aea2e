"""The audit log: a row for each action, written in its transaction, with the state before and after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.records import delete_older, to_record
from peerd.store.schedules import CLUSTER_ROW
from peerd.store.schema import tables
from peerd.store.schema.tables import audit, tasks
from peerd.store.schema.types import seconds_from_now
from peerd.store.tasks.conditions import select_by_id

DONE: Final = "done"
REFUSED: Final = "refused"
"""An outcome of the log: what was asked for was not permitted, or a login failed."""
LATE_IDS: Final = 1_000
"""Entries that may have a smaller id and a later time than the first one of an age."""
State = dict[str, Any]
TASK_STATE: Final = tuple(
    tasks.c[name]
    for name in (
        *("queue", "name", "status", "priority", "attempts", "max_attempts", "node_id", "start_at", "finish_at"),
        *("body", "error", "worker_node_id", "unique_key"),
    )
)


class NewAuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry to be written. Texts of arguments and states are JSON, bounded and masked."""

    actor_kind: str
    actor: str
    address: str | None
    way: str
    operation: str
    outcome: str = DONE
    target_kind: str | None = None
    target: str | None = None
    arguments: str | None = None
    state_before: str | None = None
    state_after: str | None = None
    problem: str | None = None


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the audit log.

    Attributes:
        way: by which the action came: ``python``, ``cli``, ``api`` or ``s3``.
        operation: such as ``tasks.retry``.
        arguments, before, after: JSON values; the states are the columns that the action has changed.
        outcome: ``done`` or ``refused``.
    """

    id: int
    at: datetime
    actor_kind: str
    actor: str
    address: str | None
    way: str
    operation: str
    target_kind: str | None
    target: str | None
    arguments: Any
    before: Any
    after: Any
    outcome: str
    problem: str | None

    @property
    def change(self) -> str:
        """What has changed, in a line; empty for a refusal, and where nothing is known."""
        before, after = self.before, self.after
        if isinstance(before, dict) and isinstance(after, dict):
            return ", ".join(f"{name}: {_text(before.get(name))} → {_text(value)}" for name, value in after.items())
        if after is None:
            return "" if before is None else f"gone: {_text(before)}"
        return _text(after)


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Entries, the newest first; ``next`` is ``after`` of the next page, None on the last one."""

    items: list[AuditEntry]
    next: str | None


class AuditTail(msgspec.Struct, frozen=True, kw_only=True):
    """Entries behind a position, the oldest first; ``next`` is the position behind them.

    ``has_more`` says that there are more now.
    """

    items: list[AuditEntry]
    next: str
    has_more: bool


class AuditFilter(msgspec.Struct, frozen=True):
    """Which entries a page has; None does not filter. ``since`` is in seconds before now."""

    actor: str | None = None
    operation: str | None = None
    target_kind: str | None = None
    target: str | None = None
    since: float | None = None


def write_entry(connection: Connection, entry: NewAuditEntry) -> None:
    """Write an entry."""
    write_entries(connection, [entry])


def write_entries(connection: Connection, entries: Sequence[NewAuditEntry]) -> None:
    """Write entries, in their order."""
    if entries:
        connection.execute(sa.insert(audit), [msgspec.structs.asdict(entry) for entry in entries])


def list_entries(connection: Connection, wanted: AuditFilter, *, after: int | None, limit: int) -> AuditPage:
    """A page of entries.

    Args:
        connection: of a transaction that reads.
        wanted: the filter.
        after: the id of the last entry of the page before.
        limit: entries at the most.
    """
    conditions = _conditions(connection, wanted)
    if after is not None:
        conditions.append(audit.c.id < after)
    statement = sa.select(audit).where(*conditions).order_by(audit.c.id.desc()).limit(limit + 1)
    entries = _read(connection, statement)
    has_more = len(entries) > limit
    return AuditPage(items=entries[:limit], next=str(entries[limit - 1].id) if has_more else None)


def list_newer(connection: Connection, wanted: AuditFilter, *, after: int | None, limit: int) -> AuditTail:
    """The first entries behind a position.

    Args:
        connection: of a transaction that reads.
        wanted: the filter.
        after: an id; None: the last one there is, so that there are no entries behind it.
        limit: entries at the most.
    """
    last = int(connection.execute(sa.select(sa.func.max(audit.c.id))).scalar() or 0)
    if after is None:
        return AuditTail(items=[], next=str(last), has_more=False)
    conditions = [*_conditions(connection, wanted), audit.c.id > after]
    statement = sa.select(audit).where(*conditions).order_by(audit.c.id).limit(limit + 1)
    found = _read(connection, statement)
    entries, has_more = found[:limit], len(found) > limit
    ids = [after, *(entry.id for entry in entries)]
    return AuditTail(items=entries, next=str(max(ids if has_more else [*ids, last])), has_more=has_more)


def purge_entries(connection: Connection, age: float, limit: int) -> int:
    """Delete entries that are so many seconds old."""
    return delete_older(connection, audit, audit.c.at, age, limit)


def _conditions(connection: Connection, wanted: AuditFilter) -> list[sa.ColumnElement[bool]]:
    named = ("actor", "operation", "target_kind", "target")
    given = {field: getattr(wanted, field) for field in named if getattr(wanted, field) is not None}
    bulk = _bulk_of(connection, wanted)
    target = {} if bulk is None else {field: given.pop(field) for field in named[2:] if field in given}
    conditions: list[sa.ColumnElement[bool]] = [audit.c[field] == value for field, value in given.items()]
    if bulk is not None:  # by the index of targets: both are in the list, and compared whole after it
        either = (target, {"target_kind": "bulk", "target": bulk})
        whole = (sa.and_(*(audit.c[field] == value for field, value in one.items())) for one in either)
        conditions += [audit.c.target.in_([one["target"] for one in either]), sa.or_(*whole)]
    if wanted.since is not None:
        young = audit.c.at >= seconds_from_now(-wanted.since)
        oldest = sa.select(audit.c.id).where(young).order_by(audit.c.at).limit(1)
        first = connection.execute(oldest).scalar()
        # By the id the walk ends where the age does; the time is compared too, for ids and times differ a little.
        conditions += [young, audit.c.id >= (0 if first is None else first - LATE_IDS)]
    return conditions


def _bulk_of(connection: Connection, wanted: AuditFilter) -> str | None:
    """The last bulk action on the task whose entries are wanted: its entry is one of the task, too."""
    target = wanted.target or ""
    if wanted.target_kind not in {None, "task"} or not (target.isascii() and target.isdecimal() and len(target) < 19):
        return None
    bulk_id = connection.execute(sa.select(tasks.c.bulk_id).where(tasks.c.id == int(target))).scalar()
    return None if bulk_id is None else str(bulk_id)


def _read(connection: Connection, statement: sa.Select[Any]) -> list[AuditEntry]:
    fields = {"arguments": "arguments", "before": "state_before", "after": "state_after"}
    return [
        to_record(AuditEntry, row, **{field: _decode(row[column]) for field, column in fields.items()})
        for row in connection.execute(statement).mappings()
    ]


def _decode(text: str | None) -> dict[str, Any] | None:
    """An object of an entry; what SQL by hand has written there is shown as it is."""
    try:
        return None if text is None else msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {"undecodable": text}


# ---------------------------------------------------------------- states


def task_state(connection: Connection, task_id: int) -> State | None:
    """Columns of a task, whose row is locked until the transaction ends."""
    if not 0 < task_id < 2**63:
        return None
    statement = sa.select(*TASK_STATE).where(tasks.c.id == task_id).with_for_update()
    return _first(connection, select_by_id(statement))


def _state_reader(table: sa.Table, columns: Sequence[str], *keys: str) -> Callable[..., State | None]:
    """A function that reads columns of the row whose keys are its arguments."""
    statement = sa.select(*(table.c[name] for name in columns))

    def read(connection: Connection, *names: object) -> State | None:
        if any(isinstance(name, int) and not 0 < name < 2**63 for name in names):  # no column holds it
            return None
        return _first(
            connection, statement.where(*(table.c[key] == name for key, name in zip(keys, names, strict=True)))
        )

    return read


queue_state: Final = _state_reader(tables.queues, ("paused", "paused_until"), "name")
limit_state: Final = _state_reader(tables.limits, ("running", "starts", "period"), "queue", "limit_key")
node_state: Final = _state_reader(tables.nodes, ("draining", "active", "address"), "name")
stored_schedule_state: Final = _state_reader(tables.stored_schedules, ("definition", "created_by"), "name")
bulk_state: Final = _state_reader(tables.bulk_actions, ("action", "state", "done"), "id")
bucket_state: Final = _state_reader(tables.file_buckets, ("class_name", "quota"), "name")
file_class_state: Final = _state_reader(tables.file_classes, ("copies", "durable", "zones"), "name")
disk_state: Final = _state_reader(tables.disks, ("state", "path"), "id")
# Tokens and access keys are shown without what is secret of them.
_GRANT: Final = ("name", "rights", "expires_at", "revoked_at")
token_state: Final = _state_reader(tables.api_tokens, (*_GRANT, "queues", "file_scopes"), "id")
access_key_state: Final = _state_reader(tables.file_access_keys, (*_GRANT, "scopes"), "id")


def schedule_state(connection: Connection, name: str) -> State | None:
    """Whether a schedule is disabled by hand."""
    mine = sa.and_(tables.schedules.c.name == name, tables.schedules.c.node_id == CLUSTER_ROW)
    return _first(connection, sa.select(tables.schedules.c.disabled, tables.schedules.c.type).where(mine))


def user_state(connection: Connection, name: str) -> State | None:
    """A user, without the hash of its password."""
    has_password = tables.users.c.password_hash.is_not(None).label("has_password")
    return _first(
        connection,
        sa.select(tables.users.c.role, tables.users.c.disabled, has_password).where(tables.users.c.name == name),
    )


def file_state(connection: Connection, bucket: str, key: str) -> State | None:
    """The current version of a file."""
    columns = (tables.files.c.size, tables.files.c.version, tables.files.c.class_name, tables.files.c.blake3)
    joined = sa.select(*columns).join(tables.file_buckets, tables.file_buckets.c.id == tables.files.c.bucket_id)
    is_current = tables.file_buckets.c.name == bucket, tables.files.c.is_current == 1, tables.files.c.file_key == key
    return _first(connection, joined.where(*is_current))


def upload_state(connection: Connection, upload_id: str) -> State | None:
    """The file of an upload that has not ended, and what was received of it."""
    columns = (
        tables.file_buckets.c.name.label("bucket"),
        tables.file_uploads.c.file_key.label("key"),
        tables.file_uploads.c.received,
    )
    joined = sa.select(*columns).join(tables.file_buckets, tables.file_buckets.c.id == tables.file_uploads.c.bucket_id)
    return _first(
        connection, joined.where(tables.file_uploads.c.id == upload_id, tables.file_uploads.c.aborted_at.is_(None))
    )


def _first(connection: Connection, statement: sa.Select[Any]) -> State | None:
    row = connection.execute(statement).mappings().first()
    return None if row is None else dict(row)
