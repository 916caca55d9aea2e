"""Checks: the files that are not settled; what they need is decided again and again.

An event (a put, a deletion, a bad copy, a lost disk) only asks for a check. The decision looks at what is there
(`peerd.storage.placement`). So an event that is reported twice, or a decision that is lost, does no harm.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.files import DEFAULT_CLASS, Copy, FileClass, FileNeeds, FileState
from peerd.store.records import add_new, columns_of, to_record
from peerd.store.schema.tables import file_checks, file_chunks, file_classes, file_copies, files
from peerd.store.schema.types import now, seconds_from_now
from peerd.store.tasks.rows import batches

STAGED_FOR: Final = 3600.0
"""Seconds after which a version that was never published is discarded; no put waits for so long."""
BLOCKED_LENGTH: Final = 500
DANGERS: Final = range(11)
"""The number of good copies, where there are any; then those without one, and tombstones."""
MOST_ENDANGERED: Final = 1
DANGER_WITHOUT_COPY: Final = 8
DANGER_OF_TOMBSTONE: Final = 9


class FileToCheck(msgspec.Struct, frozen=True):
    """A file whose check is due, and what a decision has to know.

    ``is_abandoned``: whether it was staged long ago, so its put has ended without an answer.
    """

    id: int
    needs: FileNeeds
    state: FileState
    tries: int
    is_abandoned: bool


class CopyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of ``file_copies``: a copy, and the task that makes or removes it."""

    copy: Copy
    task_id: int | None


def request_checks(connection: Connection, dangers: Mapping[int, int]) -> None:
    """Have files checked at once; of those that wait for a check already, the danger is changed.

    Args:
        connection: in a transaction.
        dangers: by file, how many good copies it has, as far as it is known.
    """
    by_danger: dict[int, list[int]] = defaultdict(list)
    for file_id, danger in dangers.items():
        by_danger[danger].append(file_id)
    for danger, ids in by_danger.items():
        for batch in batches(sorted(ids)):
            add_new(connection, file_checks, [{"file_id": file_id, "danger": danger} for file_id in batch])
            values = {"danger": danger, "due_at": now(), "requested_at": now(), "tries": 0}
            connection.execute(sa.update(file_checks).where(file_checks.c.file_id.in_(batch)).values(values))


class NewCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The check of a file that was entered in this transaction.

    Attributes:
        due_at: when it is decided again.
        tries: decisions that left something to do.
        health: how the file is kept; None: as its class wants.
    """

    file_id: int
    danger: int
    due_at: datetime
    tries: int = 0
    health: str | None = None
    blocked: str | None = None


def enter_checks(connection: Connection, new_checks: Sequence[NewCheck]) -> None:
    """Have files checked that have no check yet."""
    if new_checks:
        connection.execute(sa.insert(file_checks), [msgspec.structs.asdict(check) for check in new_checks])


def lock_due_checks(
    connection: Connection, limit: int, dangers: Iterable[int] = DANGERS, *, read_at: datetime | None = None
) -> list[int]:
    """The files whose check is due, the most endangered first; their checks stay locked until the transaction ends.

    Args:
        connection: in a transaction.
        limit: the most files.
        dangers: only files with these, in this order.
        read_at: when the disks were read by which it is decided; checks that were requested later wait.
    """
    found: list[int] = []
    for danger in dangers:
        due = (
            sa.select(file_checks.c.file_id)
            .where(file_checks.c.danger == danger, file_checks.c.due_at <= now(), *_requested_before(read_at))
            .order_by(file_checks.c.due_at)
            .limit(limit - len(found))
            .with_for_update(skip_locked=True)
        )
        found += connection.execute(due).scalars()
        if len(found) >= limit:
            break
    return found


def lock_checks(connection: Connection, file_ids: Sequence[int]) -> list[int]:
    """The files among these that have a check, which stays locked until the transaction ends."""
    found: list[int] = []
    for batch in batches(sorted(file_ids)):
        locked = sa.select(file_checks.c.file_id).where(file_checks.c.file_id.in_(batch))
        found += connection.execute(locked.order_by(file_checks.c.file_id).with_for_update()).scalars()
    return found


def read_files_to_check(connection: Connection, file_ids: Sequence[int]) -> list[FileToCheck]:
    """What decisions have to know of files, in the order given; those without a row are left out."""
    default = FileClass(name=DEFAULT_CLASS)
    is_staged = files.c.state == FileState.STAGED.value
    columns = (
        *(files.c.id, files.c.size, files.c.state, file_classes.c.object_copies),
        sa.func.coalesce(file_classes.c.copies, default.copies).label("copies"),
        sa.func.coalesce(file_classes.c.zones, default.zones).label("zones"),
        (files.c.state == FileState.DELETED.value).label("is_deleted"),
        sa.func.coalesce(file_checks.c.tries, 0).label("tries"),
        sa.and_(is_staged, files.c.created_at < seconds_from_now(-STAGED_FOR)).label("is_abandoned"),
    )
    found: dict[int, FileToCheck] = {}
    for batch in batches(file_ids):
        statement = (
            sa.select(*columns)
            .outerjoin(file_classes, file_classes.c.name == files.c.class_name)
            .outerjoin(file_checks, file_checks.c.file_id == files.c.id)
            .where(files.c.id.in_(batch))
        )
        for row in connection.execute(statement).mappings():
            found[row["id"]] = to_record(FileToCheck, row, needs=to_record(FileNeeds, row))
    return [found[file_id] for file_id in file_ids if file_id in found]


def read_copies(connection: Connection, file_ids: Sequence[int]) -> dict[int, list[CopyRow]]:
    """The copies of files, by file."""
    columns = (file_copies.c.file_id, *columns_of(Copy, file_copies), file_copies.c.task_id)
    found: dict[int, list[CopyRow]] = {file_id: [] for file_id in file_ids}
    for batch in batches(file_ids):
        statement = sa.select(*columns).where(file_copies.c.file_id.in_(batch)).order_by(*columns[:2])
        for row in connection.execute(statement).mappings():
            found[row["file_id"]].append(CopyRow(copy=to_record(Copy, row), task_id=row["task_id"]))
    return found


def end_checks(connection: Connection, file_ids: Sequence[int], *, read_at: datetime | None = None) -> None:
    """Files are settled, unless their checks were requested after the disks were read: those are due at once.

    A disk may have been declared lost in between, and its files walked over already: no other check would follow.

    Args:
        connection: in a transaction.
        file_ids: the files.
        read_at: when the disks were read by which it was decided; None: after all requests.
    """
    for batch in batches(sorted(file_ids)):
        are_they = file_checks.c.file_id.in_(batch)
        connection.execute(sa.delete(file_checks).where(are_they, *_requested_before(read_at)))
        if read_at is not None:
            connection.execute(sa.update(file_checks).where(are_they).values(due_at=now()))


def _requested_before(moment: datetime | None) -> Sequence[sa.ColumnElement[bool]]:
    return () if moment is None else (file_checks.c.requested_at < moment,)


def postpone_check(
    connection: Connection, file_id: int, seconds: float, *, danger: int, health: str | None, blocked: str | None
) -> None:
    """Check a file again after some seconds, and write how it is kept."""
    _postpone(connection, file_id, seconds, danger=danger, health=health, blocked=blocked)


def set_check_aside(connection: Connection, file_id: int, seconds: float, reason: str) -> None:
    """Check a file again after some seconds: what it needs could not be decided. It is listed as at risk."""
    health = sa.func.coalesce(file_checks.c.health, "at-risk")
    _postpone(connection, file_id, seconds, health=health, blocked=reason[:BLOCKED_LENGTH])


def _postpone(connection: Connection, file_id: int, seconds: float, **values: Any) -> None:
    values |= {"due_at": seconds_from_now(seconds), "tries": file_checks.c.tries + 1}
    connection.execute(sa.update(file_checks).where(file_checks.c.file_id == file_id).values(values))


def delete_tombstones(connection: Connection, file_ids: Sequence[int]) -> None:
    """Delete the rows of versions that have no copy any more."""
    for batch in batches(sorted(file_ids)):
        is_gone = sa.and_(files.c.id.in_(batch), files.c.state == FileState.DELETED.value)
        connection.execute(sa.delete(files).where(is_gone))
        connection.execute(sa.delete(file_chunks).where(file_chunks.c.file_id.in_(batch)))


def count_checks(connection: Connection) -> list[dict[str, Any]]:
    """How many files are not settled, by danger and health."""
    columns = file_checks.c.danger, file_checks.c.health
    counted = sa.select(*columns, sa.func.count().label("files")).group_by(*columns).order_by(*columns)
    return [dict(row) for row in connection.execute(counted).mappings()]
