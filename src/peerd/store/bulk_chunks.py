"""Carrying out bulk actions: a chunk of tasks at a time, each in one transaction.

A chunk locks the row of its bulk action, so that one process at a time carries it out; another one that finds it locked
leaves it alone, and takes the next chunk when the lock is gone, however it went. In the same transaction the chunk
finds the next tasks behind the place that the row names, locks those that are still selected, writes them, and writes
the new place and the counts. So a chunk is done exactly once, also when a process or a server dies in the middle of it.

The walk goes by the index of the filter's status. Tasks that the bulk action has written may come up again behind the
place, and are not selected any more (`peerd.store.bulk`). Tasks that are selected do not move in an index,
since nothing has changed them.

Rows that another session has locked are remembered in ``postponed``, and come again when the walk is over.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.bulk import (
    ACTIVE,
    MOST_ERRORS,
    BulkAction,
    BulkChange,
    BulkKick,
    BulkMove,
    BulkMoveToQueue,
    BulkRetry,
    BulkState,
    RefusedTask,
    TaskAction,
)
from peerd.domain.errors import DatabaseUnavailable, PeerdError
from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.store.bulk import BULK, Selection, decode_ids, encode_ids, get_bulk, to_bulk, write_bulk
from peerd.store.connection import database_errors
from peerd.store.schema.tables import bulk_actions
from peerd.store.schema.types import now, seconds_from_now
from peerd.store.tasks.actions import act
from peerd.store.tasks.filters import resolve_filter
from peerd.store.tasks.pages import EntryPlace, decode_place, encode_place, walk_sections
from peerd.store.tasks.rows import BATCH, lock_tasks

CANDIDATES: Final = 10
"""Bulk actions that are tried at the most: others may be locked."""
SEARCH_SECONDS: Final = 0.05
"""For which a chunk searches for tasks."""
LONG_CHUNK: Final = 0.1
"""Seconds that a chunk should take in all."""
SMALLEST: Final = 100
"""Tasks."""
LOCKED_PAUSE: Final = 1.0
"""Seconds until rows are tried again that another session has locked."""
PAUSE_RATIO: Final = 2.0
"""Pause after a chunk, as a share of its duration: of the bulk action, whichever node did the chunk."""
END_OF_WALK: Final = "end"
MAX_ERROR: Final = 4_000
"""Characters."""


def makes_claimable(action: TaskAction) -> bool:
    """Whether workers may find tasks to claim after it."""
    return isinstance(action, BulkRetry | BulkMove | BulkMoveToQueue | BulkChange | BulkKick)


# ---------------------------------------------------------------- chunks


class ChunkResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk did.

    Attributes:
        bulk: the bulk action after it; None if there was none to carry out.
        began: whether it was the first chunk.
        rows: tasks that were acted on, or counted.
        pause: seconds until the next chunk of this bulk action.
        queues: in which there may be tasks to claim now; empty if there are none.
        revoked: tasks that were running.
    """

    bulk: BulkAction | None = None
    began: bool = False
    rows: int = 0
    pause: float = 0.0
    queues: tuple[str, ...] = ()
    revoked: tuple[int, ...] = ()

    @property
    def has_more(self) -> bool:
        """Whether there is more to do, and now."""
        return self.bulk is not None and self.pause < LOCKED_PAUSE


class ChunkSize:
    """How many tasks the next chunk has, so that it takes about 0.1 s.

    It is never below `SMALLEST`: what a chunk costs besides its tasks is as much as 50 of them, so that smaller ones
    would not make room for others, where the machine is busy, but take longer in all.

    >>> size = ChunkSize(500)
    >>> size.record(0.01), size.record(0.01), size.tasks
    (None, None, 400)
    >>> size.record(0.3), size.record(0.3), size.record(0.3), size.tasks
    (None, None, None, 100)
    """

    def __init__(self, largest: int = BATCH) -> None:
        self._largest = largest
        self._smallest = self.tasks = min(SMALLEST, largest)

    def record(self, seconds: float) -> None:
        """Adapt it to the duration of a chunk that was full."""
        if seconds < 0.75 * LONG_CHUNK:
            self.tasks = min(2 * self.tasks, self._largest)
        elif seconds > 1.5 * LONG_CHUNK:
            self.tasks = max(self.tasks // 2, self._smallest)


def carry_out_chunk(connection: Connection, size: int = BATCH, bulk_id: int | None = None) -> ChunkResult:
    """Do the next chunk of the bulk action that has waited for the longest.

    A bulk action that cannot be carried out becomes failed, with the error; what earlier chunks did stays.

    Args:
        connection: in a transaction of its own.
        size: tasks at the most.
        bulk_id: of this bulk action only.
    """
    began = time.monotonic()
    row = _lock_next(connection, bulk_id)
    if row is None:
        return ChunkResult()
    savepoint = connection.begin_nested()
    try:
        result = _Chunk(connection, row, size, began).do()
    except Exception as error:
        if isinstance(error, DatabaseUnavailable) or _is_repeatable(error):
            raise  # the savepoint is gone with the transaction
        savepoint.rollback()
        shown = str(error) if isinstance(error, PeerdError) else f"{type(error).__name__}: {error}"
        values: dict[str, Any] = {"state": str(BulkState.FAILED), "error": shown[:MAX_ERROR], "finished_at": now()}
        write_bulk(connection, row["id"], **values)
        result = ChunkResult(began=row["started_at"] is None)
    else:
        savepoint.commit()
    return msgspec.structs.replace(result, bulk=_read(connection, row["id"]))


def _read(connection: Connection, bulk_id: int) -> BulkAction | None:
    """The row after a chunk; None where it was written by hand so that it is no bulk action."""
    try:
        return get_bulk(connection, bulk_id)
    except PeerdError:
        return None


def _is_repeatable(error: Exception) -> bool:
    """Whether the database undid the transaction, or is away."""
    return (
        database_errors.was_rolled_back(error) or database_errors.was_cancelled(error) or database_errors.is_away(error)
    )


def _lock_next(connection: Connection, bulk_id: int | None) -> dict[str, Any] | None:
    """Lock the row of a bulk action that is to be carried out now, and that no other process carries out."""
    is_due = sa.and_(
        BULK.state.in_([str(state) for state in ACTIVE]),
        sa.or_(BULK.next_at.is_(None), BULK.next_at <= now()),
        BULK.as_of < now(),  # so that every write is later than the preview, which decides what is selected
    )
    waiting = sa.select(BULK.id).where(is_due).order_by(BULK.updated_at, BULK.id).limit(CANDIDATES)
    candidates = connection.execute(waiting).scalars().all() if bulk_id is None else [bulk_id]
    for candidate in candidates:
        locked = sa.select(bulk_actions).where(BULK.id == candidate, is_due).with_for_update(skip_locked=True)
        row = connection.execute(locked).mappings().first()
        if row is not None:
            return dict(row)
    return None


class _Chunk:
    """Execute a chunk of the bulk action whose row is locked."""

    def __init__(self, connection: Connection, row: dict[str, Any], size: int, began: float) -> None:
        self._connection = connection
        self._row = row
        self._bulk = to_bulk(row)
        self._size = size
        self._began = began
        wanted = resolve_filter(connection, **self._bulk.filter)
        self._selection = Selection(wanted, self._bulk.action, self._bulk.highest_id, self._bulk.as_of)
        self._postponed = decode_ids(row["postponed"])
        self._is_at_end = row["place"] == END_OF_WALK
        self._place = self._read_place()
        self._examined = 0

    def do(self) -> ChunkResult:
        if self._bulk.at_least:  # and not by the state, which a person may write as running after a pause
            return self._count()
        found, tried_again = self._next_ids()
        return self._act_on(found, tried_again=tried_again)

    def _read_place(self) -> EntryPlace:
        text = self._row["place"]
        if text is None or self._is_at_end:
            return self._selection.start
        return decode_place(text, self._selection.wanted, self._selection.sections)

    # ---------------------------------------------------------------- counting

    def _count(self) -> ChunkResult:
        """Count on: the preview has ended at its limit."""
        counted = self._bulk.matched if self._row["place"] is not None else 0
        most = self._bulk.most
        for selected in self._walk():
            counted += len(selected)
            if most is not None and counted >= most:
                counted, self._is_at_end = most, True
                break
        state = BulkState.RUNNING if self._is_at_end else BulkState.COUNTING
        place = None if self._is_at_end else encode_place(self._place, self._selection.wanted)
        self._write(state=str(state), matched=counted, at_least=not self._is_at_end, place=place)
        return self._result(rows=self._examined)

    # ---------------------------------------------------------------- acting

    def _next_ids(self) -> tuple[list[int], bool]:
        """The next tasks to act on, and whether they are those that were locked before."""
        left = self._size
        if self._bulk.most is not None:
            left = min(left, self._bulk.most - self._bulk.done - self._bulk.failed - len(self._postponed))
            self._is_at_end = self._is_at_end or left <= 0
        if self._is_at_end or len(self._postponed) >= BATCH:
            return self._postponed[: self._size], True
        found: list[int] = []
        for selected in self._walk(left):
            found += selected
            left -= len(selected)
        return found, False

    def _walk(self, most: int | None = None) -> Any:
        """The selected ids among the next index entries, some at a time, for a while or until there are so many."""
        largest = BATCH if most is None else min(max(4 * most, 50), BATCH)
        until = self._began + SEARCH_SECONDS
        for places, is_last in walk_sections(self._connection, self._selection.sections, self._place, largest, largest):
            among = self._selection.ids_among(self._connection, [place.task_id for place in places])
            selected: list[int] = []
            for place in places:
                if most is not None and len(selected) == most:
                    break
                self._place = place
                self._examined += 1
                selected += [place.task_id] if place.task_id in among else []
            else:
                self._is_at_end = is_last
            if most is not None:
                most -= len(selected)
            yield selected
            if self._is_at_end or most == 0 or time.monotonic() > until:
                return

    def _act_on(self, found: Sequence[int], *, tried_again: bool) -> ChunkResult:
        connection, conditions = self._connection, self._selection.conditions
        locked = lock_tasks(connection, found, *conditions, skip_locked=True, bodies=False) if found else []
        missing = set(found) - {task.id for task in locked}
        held = self._selection.ids_among(connection, sorted(missing)) if missing else set()
        refused = act(connection, self._bulk.action, locked, bulk_id=self._bulk.id) if locked else {}
        done = [task for task in locked if task.id not in refused]
        tried = set(found) if tried_again else set()
        postponed = [task_id for task_id in self._postponed if task_id not in tried] + sorted(held)
        skipped = len(missing) - len(held)
        pause = LOCKED_PAUSE if tried_again and held and not locked else None
        counts = {
            "done": self._bulk.done + len(done),
            "skipped": self._bulk.skipped + skipped,
            "failed": self._bulk.failed + len(refused),
        }
        errors = [*self._bulk.errors, *(RefusedTask(task_id, str(error)) for task_id, error in refused.items())]
        place = END_OF_WALK if self._is_at_end else encode_place(self._place, self._selection.wanted)
        values: dict[str, Any] = {"state": str(BulkState.RUNNING), "place": place, "postponed": encode_ids(postponed)}
        values["errors"] = msgspec.json.encode(errors[:MOST_ERRORS]).decode() if errors else None
        if self._is_at_end and not postponed:
            counts["skipped"] = self._skipped_in_all(counts)
            values |= {"state": str(BulkState.DONE), "finished_at": now()}
        self._write(**values, **counts, pause=pause)
        return self._result(rows=len(locked), done=done, pause=pause)

    def _skipped_in_all(self, counts: dict[str, int]) -> int:
        """Also those that had changed before the walk came to them: what is missing of the number of the preview."""
        if self._bulk.most is not None:
            return counts["skipped"]
        return max(self._bulk.matched - counts["done"] - counts["failed"], counts["skipped"])

    # ---------------------------------------------------------------- the end of a chunk

    def _write(self, *, pause: float | None = None, **values: Any) -> None:
        if self._bulk.started_at is None:
            values["started_at"] = now()
        if pause is None:
            pause = PAUSE_RATIO * (time.monotonic() - self._began)
        examined = self._bulk.examined + self._examined
        write_bulk(self._connection, self._bulk.id, examined=examined, next_at=seconds_from_now(pause), **values)

    def _result(self, *, rows: int, done: Sequence[Task] = (), pause: float | None = None) -> ChunkResult:
        queues = {task.queue for task in done} if makes_claimable(self._bulk.action) else set()
        return ChunkResult(
            began=self._bulk.started_at is None,
            rows=rows,
            pause=PAUSE_RATIO * (time.monotonic() - self._began) if pause is None else pause,
            queues=tuple(sorted(queues)),
            revoked=tuple(task.id for task in done if task.status is Status.WORKING),
        )
