"""Rows of `bulk_actions`: made, read, paused, resumed, canceled and purged."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection, RowMapping

from peerd.domain.bulk import (
    ENDED,
    OPEN,
    RESTRICTED_TO,
    BulkAction,
    BulkState,
    RefusedTask,
    TaskAction,
    decode_action,
    encode_action,
)
from peerd.domain.errors import BulkActionHasEnded, BulkActionNotFound, InvalidFilter
from peerd.store.schema.tables import bulk_actions
from peerd.store.schema.types import now, seconds_from_now
from peerd.store.tasks.rows import BATCH, to_whole_number

BULK: Final = bulk_actions.c
NEWEST: Final = 1_000
"""Bulk actions among which those of some queues are looked for."""
_COUNTS: Final = ("highest_id", "matched", "examined", "done", "skipped", "failed")


def insert_bulk(connection: Connection, action: TaskAction, fields: Mapping[str, Any], **values: Any) -> int:
    """Write the row of a new bulk action; its id."""
    name, arguments = encode_action(action)
    row = {"action": name, "arguments": arguments, "filter": msgspec.json.encode(fields).decode(), **values}
    key = connection.execute(sa.insert(bulk_actions).values(row)).inserted_primary_key
    assert key is not None
    return int(key[0])


def get_bulk(connection: Connection, bulk_id: int) -> BulkAction:
    """The bulk action of this id.

    Raises:
        BulkActionNotFound: it is not there.
    """
    statement = sa.select(bulk_actions).where(BULK.id == bulk_id)
    row = connection.execute(statement).mappings().first() if 0 < bulk_id < 2**63 else None
    if row is None:
        raise BulkActionNotFound(bulk_id)
    return to_bulk(row)


def list_bulk(connection: Connection, states: Iterable[BulkState] | None = None, limit: int = 50) -> list[BulkAction]:
    """The newest bulk actions, newest first; those of some states, or all."""
    wanted = sa.true() if states is None else BULK.state.in_([str(state) for state in states])
    return _read_all(connection, sa.select(bulk_actions).where(wanted).limit(limit))


def _read_all(connection: Connection, statement: sa.Select[Any]) -> list[BulkAction]:
    found = []
    for row in connection.execute(statement.order_by(BULK.id.desc())).mappings():
        with suppress(InvalidFilter):  # one that SQL by hand has made unreadable must not hide the others
            found.append(to_bulk(row))
    return found


def require_within(connection: Connection, bulk_id: int, queues: Collection[str] | None) -> None:
    """Check that a bulk action is of no other queues than these; None: of any.

    Raises:
        BulkActionNotFound: it is not there, or not restricted to some of them.
    """
    if queues is None:
        return
    found = sa.select(BULK.filter).where(BULK.id == bulk_id)
    stored = connection.execute(found).scalar() if 0 < bulk_id < 2**63 else None
    if stored is None or not _is_within(stored, queues):
        raise BulkActionNotFound(bulk_id)


def list_within(
    connection: Connection, queues: Collection[str], states: Iterable[BulkState] | None = None, limit: int = 50
) -> list[BulkAction]:
    """The same as `list_bulk`, of those among the newest 1,000 that are of no other queues than these."""
    newest = sa.select(BULK.id, BULK.state, BULK.filter).order_by(BULK.id.desc()).limit(NEWEST)
    wanted = None if states is None else {str(state) for state in states}
    ids = [
        row.id
        for row in connection.execute(newest)
        if (wanted is None or row.state in wanted) and _is_within(row.filter, queues)
    ][:limit]
    return _read_all(connection, sa.select(bulk_actions).where(BULK.id.in_(ids))) if ids else []


def _is_within(stored_filter: str, queues: Collection[str]) -> bool:
    """Whether a bulk action with this filter is restricted to some of these queues."""
    try:
        restricted_to = _decode_filter(stored_filter).get(RESTRICTED_TO, ())
    except InvalidFilter:
        return False
    return bool(restricted_to) and set(restricted_to) <= set(queues)


def pause_bulk(connection: Connection, bulk_id: int) -> BulkAction:
    """Let managers leave it alone from the next chunk on; nothing happens to one that is paused.

    Raises:
        BulkActionNotFound: it is not there.
        BulkActionHasEnded: it has ended.
    """
    return _set_state(connection, bulk_id, lambda _: BulkState.PAUSED)


def resume_bulk(connection: Connection, bulk_id: int) -> BulkAction:
    """Let managers go on; nothing happens to one that is not paused.

    Raises:
        BulkActionNotFound: it is not there.
        BulkActionHasEnded: it has ended.
    """

    def resumed(bulk: BulkAction) -> BulkState:
        if bulk.state is not BulkState.PAUSED:
            return bulk.state
        return BulkState.COUNTING if bulk.at_least else BulkState.RUNNING

    return _set_state(connection, bulk_id, resumed)


def cancel_bulk(connection: Connection, bulk_id: int) -> BulkAction:
    """End it before its next chunk. What it has done stays done.

    Raises:
        BulkActionNotFound: it is not there.
        BulkActionHasEnded: it has ended.
    """
    return _set_state(connection, bulk_id, lambda _: BulkState.CANCELED, finished_at=now())


def purge_bulk(connection: Connection, age: float, limit: int = BATCH) -> int:
    """Delete the rows of bulk actions that ended more than ``age`` seconds ago."""
    old = sa.and_(
        BULK.state.in_([str(state) for state in ENDED]),
        sa.func.coalesce(BULK.finished_at, BULK.updated_at) <= seconds_from_now(-age),
    )
    found = sa.select(BULK.id).where(old).order_by(BULK.id).limit(limit).with_for_update(skip_locked=True)
    ids = connection.execute(found).scalars().all()
    if not ids:
        return 0
    return connection.execute(sa.delete(bulk_actions).where(BULK.id.in_(ids), old)).rowcount


def write_bulk(connection: Connection, bulk_id: int, **values: Any) -> None:
    """Write columns of a bulk action whose row is locked."""
    connection.execute(sa.update(bulk_actions).where(BULK.id == bulk_id).values(updated_at=now(), **values))


def to_bulk(row: RowMapping) -> BulkAction:
    """A row as a value.

    Raises:
        InvalidFilter: SQL by hand has written what is no bulk action.
    """
    values = dict(row)
    values["action"] = decode_action(values["action"], values.pop("arguments"))
    values["filter"] = _decode_filter(values["filter"])
    values["errors"] = _decode(values["errors"] or "[]", list[RefusedTask], "errors")
    values["postponed"] = len(decode_ids(values["postponed"]))
    values["state"] = BulkState(values["state"])
    values["at_least"] = bool(values["at_least"])
    values |= {name: to_whole_number(values[name]) for name in _COUNTS}
    return BulkAction(**{name: values[name] for name in BulkAction.__struct_fields__})


def decode_ids(text: str | None) -> list[int]:
    """The ids of postponed tasks."""
    ids: list[int] = _decode(text or "[]", list[int], "postponed")
    return ids


def encode_ids(ids: Sequence[int]) -> str | None:
    """The text of postponed tasks; None where there are none."""
    return msgspec.json.encode(ids).decode() if ids else None


def _decode_filter(text: str) -> dict[str, Any]:
    fields: dict[str, Any] = _decode(text, dict[str, Any], "filter")
    if RESTRICTED_TO in fields:  # anything but names of queues must not become a filter of all
        _decode(msgspec.json.encode(fields[RESTRICTED_TO]).decode(), list[str], "filter")
    return fields


def _decode(text: str, kind: Any, column: str) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidFilter(column, f"the row of the bulk action holds what was written by hand: {error}") from None


def _set_state(connection: Connection, bulk_id: int, change: Any, **values: datetime | Any) -> BulkAction:
    statement = sa.select(bulk_actions).where(BULK.id == bulk_id).with_for_update()
    row = connection.execute(statement).mappings().first() if 0 < bulk_id < 2**63 else None
    if row is None:
        raise BulkActionNotFound(bulk_id)
    bulk = to_bulk(row)
    if bulk.state not in OPEN:
        raise BulkActionHasEnded(bulk_id, bulk.state)
    state = change(bulk)
    if state is not bulk.state:
        write_bulk(connection, bulk_id, state=str(state), next_at=None, **values)
    return get_bulk(connection, bulk_id)
