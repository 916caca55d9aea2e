"""Bulk actions: made, read, paused, resumed, canceled and purged; `peerd.store.bulk_chunks` carries them out.

The tasks of a bulk action are those that met its filter when it was previewed, and have not changed since. A task that
has changed since has a later ``updated_at``, which every write of peerd sets; one that is running, whose process
touches it, has a later start. So a task that a bulk action has written is never its own again, wherever in the index
it is found, and neither is one that came to the filter after the preview. Times that are relative to now count from
that moment, too.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection, RowMapping

from peerd.domain.bulk import (
    ENDED,
    MOST_COUNTED,
    OPEN,
    RESTRICTED_TO,
    BulkAction,
    BulkMove,
    BulkPreview,
    BulkState,
    RefusedTask,
    TaskAction,
    action_tag,
    check_status,
    decode_action,
    encode_action,
    event_of,
)
from peerd.domain.errors import BulkActionHasEnded, BulkActionNotFound, InvalidFilter
from peerd.domain.lifecycle import Status, sources
from peerd.domain.task import EARLIEST, Task
from peerd.store.nodes import get_node_id
from peerd.store.outcomes import database_now
from peerd.store.records import insert_row, to_record
from peerd.store.schema.tables import bulk_actions, tasks
from peerd.store.schema.types import now, seconds_from_now
from peerd.store.tasks.conditions import select_by_id, status_is
from peerd.store.tasks.filters import TaskConditions, as_of, resolve_filter
from peerd.store.tasks.pages import EntryPlace, IndexSection, sections_of, walk_sections
from peerd.store.tasks.rows import BATCH, SMALL_COLUMNS, by_id_only, to_task, to_whole_number

BULK: Final = bulk_actions.c
NEWEST: Final = 1_000
"""Bulk actions among which those of some queues are looked for."""
_COUNTS: Final = ("highest_id", "matched", "examined", "done", "skipped", "failed")


def insert_bulk(connection: Connection, action: TaskAction, fields: Mapping[str, Any], **values: Any) -> int:
    """Write the row of a new bulk action; its id."""
    name, arguments = encode_action(action)
    row = {"action": name, "arguments": arguments, "filter": msgspec.json.encode(fields).decode(), **values}
    return insert_row(connection, bulk_actions, row)


def get_bulk(connection: Connection, bulk_id: int) -> BulkAction:
    """The bulk action of this id.

    Raises:
        BulkActionNotFound: it is not there.
    """
    return to_bulk(_find_row(connection, bulk_id, sa.select(bulk_actions)))


def _find_row(connection: Connection, bulk_id: int, statement: sa.Select[Any]) -> RowMapping:
    row = connection.execute(statement.where(BULK.id == bulk_id)).mappings().first() if 0 < bulk_id < 2**63 else None
    if row is None:
        raise BulkActionNotFound(bulk_id)
    return row


def list_bulk(
    connection: Connection,
    queues: Collection[str] | None = None,
    states: Iterable[BulkState] | None = None,
    limit: int = 50,
) -> list[BulkAction]:
    """The newest bulk actions, newest first; those of some states, or all.

    With ``queues`` they are those among the newest 1,000 that are of no other queues than these.
    """
    wanted = sa.true() if states is None else BULK.state.in_([str(state) for state in states])
    if queues is not None:
        newest = sa.select(BULK.id).order_by(BULK.id.desc()).limit(NEWEST).subquery()
        some = sa.select(BULK.id, BULK.filter).join(newest, newest.c.id == BULK.id).where(wanted)
        rows = connection.execute(some.order_by(BULK.id.desc()))
        wanted = BULK.id.in_([row.id for row in rows if _is_within(row.filter, queues)][:limit])
    found = []
    statement = sa.select(bulk_actions).where(wanted).order_by(BULK.id.desc()).limit(limit)
    for row in connection.execute(statement).mappings():
        with suppress(InvalidFilter):  # one that SQL by hand has made unreadable must not hide the others
            found.append(to_bulk(row))
    return found


def require_within(connection: Connection, bulk_id: int, queues: Collection[str] | None) -> None:
    """Check that a bulk action is of no other queues than these; None: of any.

    Raises:
        BulkActionNotFound: it is not there, or not restricted to some of them.
    """
    if queues is not None and not _is_within(_find_row(connection, bulk_id, sa.select(BULK.filter))["filter"], queues):
        raise BulkActionNotFound(bulk_id)


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


def to_bulk(row: Mapping[Any, Any]) -> BulkAction:
    """A row as a value.

    Raises:
        InvalidFilter: SQL by hand has written what is no bulk action.
    """
    return to_record(
        BulkAction,
        row,
        action=decode_action(row["action"], row["arguments"]),
        filter=_decode_filter(row["filter"]),
        errors=_decode(row["errors"] or "[]", list[RefusedTask], "errors"),
        postponed=len(decode_ids(row["postponed"])),
        **{name: to_whole_number(row[name]) for name in _COUNTS},
    )


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
    bulk = to_bulk(_find_row(connection, bulk_id, sa.select(bulk_actions).with_for_update()))
    if bulk.state not in OPEN:
        raise BulkActionHasEnded(bulk_id, bulk.state)
    state = change(bulk)
    if state is not bulk.state:
        write_bulk(connection, bulk_id, state=str(state), next_at=None, **values)
    return get_bulk(connection, bulk_id)


# ---------------------------------------------------------------- creation


SHORT_PREVIEW: Final = 0.2
"""Seconds: on SQLite all other writers wait meanwhile. The managers count on."""
EXAMPLES: Final = 5
NO_DIGEST: Final = "it is of a preview of another action, or of another filter; preview this one, and give its digest"
PREVIEW_TIME: Final = 2.0
"""Seconds after which a preview says that there may be more."""


def create_bulk(
    connection: Connection,
    action: TaskAction,
    fields: Mapping[str, Any],
    *,
    digest: str | None = None,
    most: int | None = None,
    created_by: str | None = None,
) -> BulkAction:
    """Write a bulk action; the managers carry it out.

    Args:
        connection: in a transaction.
        action: what is done to each task.
        fields: the fields of the filter.
        digest: of a preview, whose tasks it acts on; without it, on those that meet the filter now.
        most: tasks that it acts on at the most.
        created_by: the name of a user.

    Raises:
        InvalidFilter: a field has a wrong value, or the digest is of another preview.
        NodeNotFound: no node has the name of the filter, or of the action.
        IllegalTransition: no task of the filter's status allows the action.
    """
    check_status(action, resolve_filter(connection, **fields).status)
    if isinstance(action, BulkMove) and action.node is not None:
        get_node_id(connection, action.node)
    found = preview_bulk(connection, action, fields, within=SHORT_PREVIEW).digest if digest is None else digest
    previewed = PreviewDigest.decode(found, action, fields, database_now(connection))
    matched, at_least = previewed.matched, previewed.at_least
    if most is not None and matched >= most:
        matched, at_least = most, False
    bulk_id = insert_bulk(
        connection,
        action,
        fields,
        highest_id=previewed.highest_id,
        as_of=previewed.as_of,
        most=most,
        state=str(BulkState.COUNTING if at_least else BulkState.RUNNING),
        matched=matched,
        at_least=at_least,
        created_by=created_by,
    )
    return get_bulk(connection, bulk_id)


# ---------------------------------------------------------------- selection


class Selection:
    """The tasks of a bulk action.

    Args:
        wanted: its filter.
        action: what is done to them: a status that does not allow it is left out.
        highest_id: the newest task of the preview.
        moment: of the preview.
    """

    def __init__(self, wanted: TaskConditions, action: TaskAction, highest_id: int, moment: datetime) -> None:
        self.wanted = as_of(wanted, moment)
        self.sections: list[IndexSection] = sections_of(self.wanted)
        self._highest_id = highest_id
        self.conditions = [*self.wanted.conditions(), tasks.c.id <= highest_id, _unchanged_since(moment)]
        allowed = sources(event_of(action))
        if wanted.status is None and len(allowed) < len(Status):
            self.conditions.insert(0, status_is(*allowed))

    @property
    def start(self) -> EntryPlace:
        """The place before the first entry: behind the tasks that are newer than the preview, if ids are the order."""
        by_id = [column.name for column in self.sections[0].order] == ["id"]
        return EntryPlace(0, (min(self._highest_id + 1, 2**63 - 1),) if by_id else ())

    def ids_among(self, connection: Connection, ids: Sequence[int]) -> set[int]:
        """The tasks among these that are selected, by what is committed: read without locks."""
        found: set[int] = set()
        for first in range(0, len(ids), BATCH):
            conditions = by_id_only(connection, ids[first : first + BATCH], self.conditions)
            found |= set(connection.execute(select_by_id(sa.select(tasks.c.id).where(*conditions))).scalars())
        return found


def _unchanged_since(moment: datetime) -> sa.ColumnElement[bool]:
    """No write has changed a task since a moment; touches and progress are no changes."""
    same_claim = sa.and_(status_is(Status.WORKING), tasks.c.worker_started_at <= moment)
    return sa.or_(tasks.c.updated_at <= moment, same_claim)


class PreviewDigest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a preview has found, and a digest of what it was asked."""

    request: str
    highest_id: int
    as_of: datetime
    matched: int
    at_least: bool

    def encode(self) -> str:
        """The preview's token as text."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).rstrip(b"=").decode()

    @classmethod
    def decode(cls, text: str, action: TaskAction, fields: Mapping[str, Any], moment: datetime) -> PreviewDigest:
        """The digest of a preview of this action and this filter, which was before now.

        Raises:
            InvalidFilter: it is of another one, or none.
        """
        try:
            padded = text.encode("ascii") + b"=" * (-len(text) % 4)
            found = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=cls)
        except (ValueError, msgspec.MsgspecError):
            raise InvalidFilter("digest", NO_DIGEST) from None
        is_past = found.as_of.tzinfo is not None and EARLIEST <= found.as_of <= moment
        if not is_past or found.request != request_digest(action, fields):
            raise InvalidFilter("digest", NO_DIGEST)
        if not 0 <= found.highest_id < 2**63 or not 0 <= found.matched <= MOST_COUNTED:
            raise InvalidFilter("digest", "its numbers are out of range; preview the action again")
        return found


def request_digest(action: TaskAction, fields: Mapping[str, Any]) -> str:
    """A digest of an action's name and a filter, which decide for which tasks it is; a node or a queue does not."""
    asked = [action_tag(action), dict(sorted(fields.items()))]
    return blake2b(msgspec.json.encode(asked), digest_size=12).hexdigest()


def preview_bulk(
    connection: Connection, action: TaskAction, fields: Mapping[str, Any], *, within: float = PREVIEW_TIME
) -> BulkPreview:
    """Count the tasks that a bulk action would be for, and read the first ones.

    Args:
        connection: of a transaction that only reads.
        action: what would be done.
        fields: the fields of the filter.
        within: seconds after which counting ends.

    Raises:
        InvalidFilter: a field has a wrong value.
        NodeNotFound: no node has the name of the filter.
        IllegalTransition: no task of the filter's status allows the action.
    """
    wanted = resolve_filter(connection, **fields)
    check_status(action, wanted.status)
    moment = database_now(connection)
    highest_id = connection.execute(sa.select(sa.func.max(tasks.c.id))).scalar() or 0
    selection = Selection(wanted, action, int(highest_id), moment)
    count, at_least, first = _count(connection, selection, time.monotonic() + within)
    digest = PreviewDigest(request_digest(action, fields), int(highest_id), moment, count, at_least)
    return BulkPreview(
        matched=count,
        at_least=at_least,
        examples=_read(connection, selection, first),
        highest_id=int(highest_id),
        as_of=moment,
        digest=digest.encode(),
    )


def _count(connection: Connection, selection: Selection, until: float) -> tuple[int, bool, list[int]]:
    """How many tasks there are, whether there may be more, and the ids of the first ones."""
    first: list[int] = []
    count = 0
    for places, is_last in walk_sections(connection, selection.sections, selection.start, BATCH):
        selected = selection.ids_among(connection, [place.task_id for place in places])
        count += len(selected)
        first += [place.task_id for place in places if place.task_id in selected][: EXAMPLES - len(first)]
        if count > MOST_COUNTED:
            return MOST_COUNTED, True, first
        if time.monotonic() > until and not is_last:
            return count, True, first
    return count, False, first


def _read(connection: Connection, selection: Selection, ids: Sequence[int]) -> list[Task]:
    """The tasks of these ids, in this order, without those that have changed since they were counted."""
    conditions = by_id_only(connection, ids, selection.conditions)
    rows = connection.execute(select_by_id(sa.select(*SMALL_COLUMNS).where(*conditions))).mappings() if ids else ()
    found = {task.id: task for task in map(to_task, rows)}
    return [found[task_id] for task_id in ids if task_id in found]
