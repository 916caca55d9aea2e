"""A new bulk action, and its tasks: those that met its filter when it was previewed, and have not changed since.

A task that has changed since has a later ``updated_at``, which every write of peerd sets; one that is running, whose
process touches it, has a later start. So a task that a bulk action has written is never its own again, wherever in the
index it is found, and neither is one that came to the filter after the preview. Times that are relative to now count
from that moment, too.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.bulk import (
    MOST_COUNTED,
    BulkAction,
    BulkMove,
    BulkPreview,
    BulkState,
    TaskAction,
    action_tag,
    check_status,
    event_of,
)
from peerd.domain.errors import InvalidFilter
from peerd.domain.lifecycle import Status, sources
from peerd.domain.task import EARLIEST, Task
from peerd.store.bulk.rows import get_bulk, insert_bulk
from peerd.store.nodes.nodes import get_node_id
from peerd.store.outcomes import database_now
from peerd.store.schema.tables import tasks
from peerd.store.tasks.conditions import select_by_id, status_is
from peerd.store.tasks.filters import TaskConditions, as_of, resolve_filter
from peerd.store.tasks.pages import EntryPlace, IndexSection, sections_of, walk_sections
from peerd.store.tasks.rows import BATCH, SMALL_COLUMNS, by_id_only, to_task

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
        """Those that are selected, by what is committed: read without locks."""
        found: set[int] = set()
        for first in range(0, len(ids), BATCH):
            conditions = by_id_only(connection, ids[first : first + BATCH], self.conditions)
            found |= set(connection.execute(select_by_id(sa.select(tasks.c.id).where(*conditions))).scalars())
        return found


def _unchanged_since(moment: datetime) -> sa.ColumnElement[bool]:
    """That no write has changed a task since; touches and progress are no changes."""
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
        """As text."""
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
