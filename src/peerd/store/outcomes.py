"""What the holder of a task writes: touches and progress while it holds it, and the outcome at the end.

Fenced: each write repeats the lease, and the status working. A touch renews ``checked_at``, and tells which tasks the
process holds no more.

Success is written for many tasks at once. Every task is written by its primary key, and nothing is read before. How
many are written in one statement, and how their results find their rows, differs:

- MariaDB and MySQL: a statement for each lease that occurs, which is nearly always one. Results are found by their
  position in a list.
- PostgreSQL: one statement, joined with arrays of ids, leases and results.
- SQLite: one statement, joined with a JSON list: each statement releases Python's lock, and waits for it again while
  other threads compute.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import FINISHED, Status, TaskEvent, after, sources, target
from peerd.domain.outcome import (
    ERROR_LIMIT,
    TRACEBACK_LIMIT,
    Outcome,
    TaskTransition,
    outcome_labels,
    transition_after,
    truncate,
)
from peerd.domain.task import Task
from peerd.store.schema.tables import attempts, tasks
from peerd.store.schema.types import now
from peerd.store.statements import CompiledStatement, id_in_list, insert_if_absent
from peerd.store.tasks.conditions import by_index, is_working, select_by_id, status_is, update_by_id
from peerd.store.tasks.rows import (
    LARGEST_INTEGER,
    batches,
    by_id_only,
    incremented,
    lock_available,
    lock_tasks,
    status_literal,
    update_tasks,
)

NOTE_LIMIT: Final = 255
"""Characters."""


class ClaimId(msgspec.Struct, frozen=True):
    """The identity of a claim: the task, and the lease as the claim raised it."""

    id: int
    lease: int


class WriteResult(msgspec.Struct, frozen=True):
    """The claims that were not written.

    Attributes:
        refused: they are not held any more.
        locked: they are held, and another session has locked their rows.
    """

    refused: set[ClaimId]
    locked: set[ClaimId]


def record_outcomes(connection: Connection, process_id: int, outcomes: Mapping[ClaimId, Outcome]) -> WriteResult:
    """Write outcomes other than done: the tasks' new statuses, and a row in ``attempts`` for each.

    In a transaction of its own. It may be repeated after a lost reply. Rows that another session has locked are left
    out.
    """
    missing: set[ClaimId] = set()
    for batch in batches(sorted(outcomes, key=lambda held: held.id)):
        locked = {
            ClaimId(task.id, lease): task
            for lease, ids in by_lease(batch).items()
            for task in lock_tasks(connection, ids, *is_held(lease), skip_locked=True)
        }
        if locked:
            moment = database_now(connection)
            judged = [(task, transition_after(task, outcomes[held], moment)) for held, task in locked.items()]
            apply_verdicts(connection, judged)
        missing.update(
            held
            for held in batch
            if held not in locked and not _was_recorded(connection, process_id, held, outcomes[held])
        )
    locked_elsewhere = still_held(connection, missing)
    return WriteResult(missing - locked_elsewhere, locked_elsewhere)


def apply_verdicts(
    connection: Connection, judged: Iterable[tuple[Task, TaskTransition]], *, crashed: bool = False
) -> None:
    """Write the transitions of working tasks, whose rows are locked, and record their attempts.

    Tasks with equal transitions are written together. ``crashed`` counts a crash: their process died.
    """
    alike: dict[TaskTransition, list[Task]] = defaultdict(list)
    for task, verdict in judged:
        alike[verdict].append(task)
    for verdict, judged_alike in alike.items():
        ids = [task.id for task in judged_alike]
        update_tasks(connection, ids, status_is(Status.WORKING), **_values_of(verdict, crashed=crashed))
        record_attempts(connection, judged_alike, verdict)


def record_attempts(connection: Connection, judged: Sequence[Task], verdict: TaskTransition) -> None:
    """Write the rows of attempts that did not succeed. A row that the claim already has stays as it is."""
    rows = [
        {
            "task_id": task.id,
            "lease": task.lease,
            "number": min(task.attempts + 1, LARGEST_INTEGER) if verdict.counted else 0,
            "node_id": task.worker_node_id,
            "process_id": task.process_id,
            "started_at": task.worker_started_at,
            "outcome": verdict.label,
            "error": _cut(verdict.error, ERROR_LIMIT),
            "traceback": _cut(verdict.traceback, TRACEBACK_LIMIT),
            "cause": _cut(verdict.cause, 255),
        }
        for task in judged
    ]
    insert_if_absent(connection, attempts, rows, key=("task_id", "lease"))


def _values_of(verdict: TaskTransition, *, crashed: bool) -> dict[str, Any]:
    """The columns that a transition changes."""
    status = after(Status.WORKING, verdict.event)
    assert isinstance(status, Status)
    values: dict[str, Any] = {"status": status_literal(status), "deadline_at": None}
    if verdict.counted:
        values["attempts"] = incremented(tasks.c.attempts)
        if not verdict.keeps_place:
            values["failures"] = incremented(tasks.c.failures)
    if crashed:
        values["crashes"] = incremented(tasks.c.crashes)
    if verdict.start_at is not None:
        values["start_at"] = verdict.start_at
    if status in FINISHED:
        values["finished_at"] = now()
    if verdict.event not in (TaskEvent.RELEASE, TaskEvent.SNOOZE):
        values["error"] = _cut(verdict.error, ERROR_LIMIT)
    return values


def _cut(text: str | None, limit: int) -> str | None:
    return None if text is None else truncate(text, limit)


def database_now(connection: Connection) -> datetime:
    """The time of the database's clock, which decides everywhere."""
    moment = connection.execute(sa.select(now())).scalar_one()
    assert isinstance(moment, datetime)
    return moment


def is_held(lease: int | sa.ColumnElement[int]) -> tuple[sa.ColumnElement[bool], ...]:
    """A claim is still held: the guard of the holder's every write."""
    return (tasks.c.lease == lease, status_is(*sources(TaskEvent.COMPLETE)))


def still_held(connection: Connection, claims: Iterable[ClaimId]) -> set[ClaimId]:
    """The claims among these that are held, by what is committed: read without locks."""
    return claims_where(connection, claims, is_held)


def claims_where(
    connection: Connection,
    claims: Iterable[ClaimId],
    conditions: Callable[[int], tuple[sa.ColumnElement[bool], ...]],
) -> set[ClaimId]:
    """The claims among these whose rows meet the conditions that belong to their lease; read without locks."""
    found: set[ClaimId] = set()
    for lease, ids in by_lease(claims).items():
        meeting = select_by_id(sa.select(tasks.c.id).where(*by_id_only(connection, ids, conditions(lease))))
        found |= {ClaimId(task_id, lease) for task_id in connection.execute(meeting).scalars()}
    return found


def by_lease(batch: Iterable[ClaimId]) -> dict[int, list[int]]:
    """The ids of each lease, in their order: a statement is for one lease."""
    groups: dict[int, list[int]] = defaultdict(list)
    for held in batch:
        groups[held.lease].append(held.id)
    return groups


def _was_recorded(connection: Connection, process_id: int, held: ClaimId, outcome: Outcome) -> bool:
    """Whether an earlier try of this write, whose reply was lost, did it."""
    found = sa.select(attempts.c.id).where(
        attempts.c.task_id == held.id,
        attempts.c.lease == held.lease,
        attempts.c.process_id == process_id,
        attempts.c.outcome.in_(outcome_labels(outcome)),
    )
    return connection.execute(found).first() is not None


# ---------------------------------------------------------------- touch


class TaskProgress(msgspec.Struct, frozen=True):
    """The progress of a task: a fraction from 0 to 1, and a note."""

    fraction: float
    note: str | None = None


def touch(connection: Connection, held: set[ClaimId]) -> set[ClaimId]:
    """Renew ``checked_at`` of the tasks that this process holds.

    In a transaction of its own. A row that another session has locked is left out: it would delay the others.

    Returns:
        the claims that it holds no more: canceled, moved, rescued or deleted meanwhile.
    """
    return _touch_batches(connection, held, lambda *_: {}).refused


def report_progress(connection: Connection, reports: Mapping[ClaimId, TaskProgress]) -> WriteResult:
    """Write progress and renew ``checked_at``; rows that another session has locked are left out.

    Returns:
        the claims that this process holds no more, and those whose rows are locked.
    """

    def values(lease: int, ids: Sequence[int]) -> dict[str, Any]:
        own = {task_id: reports[ClaimId(task_id, lease)] for task_id in ids}
        fractions = {task_id: clamp_fraction(progress.fraction) for task_id, progress in own.items()}
        notes: dict[int, sa.ColumnElement[Any]] = {
            task_id: sa.literal(None if progress.note is None else truncate(progress.note, NOTE_LIMIT), sa.Text())
            for task_id, progress in own.items()
        }
        return {
            "progress": sa.case(fractions, value=tasks.c.id, else_=tasks.c.progress),
            "progress_note": sa.case(notes, value=tasks.c.id, else_=sa.null()),
        }

    return _touch_batches(connection, reports, values)


def claims_of_process(connection: Connection, process_id: int) -> dict[ClaimId, int | None]:
    """All claims that this process has in the table, with their tokens."""
    columns = (tasks.c.id, tasks.c.lease, tasks.c.claim_token)
    statement = sa.select(*columns).where(is_working(), tasks.c.process_id == process_id)
    rows = connection.execute(by_index(statement, "tasks_claim"))
    return {ClaimId(row.id, row.lease): row.claim_token for row in rows}


def _touch_batches(
    connection: Connection, claims: Iterable[ClaimId], values: Callable[[int, Sequence[int]], dict[str, Any]]
) -> WriteResult:
    result = WriteResult(set(), set())
    for batch in batches(sorted(claims, key=attrgetter("id"))):
        for lease, ids in by_lease(batch).items():
            written = _touch(connection, lease, ids, **values(lease, ids))
            result.refused.update(written.refused)
            result.locked.update(written.locked)
    return result


def _touch(connection: Connection, lease: int, ids: Sequence[int], **values: Any) -> WriteResult:
    available = lock_available(connection, ids, *is_held(lease))
    written = update_tasks(connection, available, *is_held(lease), checked_at=now(), **values)
    if written == len(ids):
        return WriteResult(set(), set())
    not_written = set(ids) - set(available) if written == len(available) else ids
    missing = {ClaimId(task_id, lease) for task_id in not_written}
    still = still_held(connection, missing)
    return WriteResult(missing - still, {held for held in still if held.id not in available})


def clamp_fraction(fraction: float) -> float:
    """A fraction as a column of all databases can hold it.

    >>> [clamp_fraction(value) for value in (-1.0, 0.5, 7.0, float("nan"))]
    [0.0, 0.5, 1.0, 0.0]
    """
    return min(max(fraction, 0.0), 1.0) if fraction == fraction else 0.0  # noqa: PLR0124 - only NaN is not itself


# ---------------------------------------------------------------- success


CompletionResults = Mapping[ClaimId, str | None]
Written = tuple[Sequence[ClaimId], int]
"""Claims of one statement, and the number of rows that it has written."""


def complete(connection: Connection, process_id: int, results: CompletionResults) -> set[ClaimId]:
    """Write tasks as done, with their results (JSON text).

    Each of its statements may be committed by itself. It may be repeated after a lost reply: a task that the same
    process has already written counts as accepted.

    Returns:
        the claims that were refused, because they are not held any more.
    """
    refused: set[ClaimId] = set()
    write = {"postgresql": _on_postgresql, "sqlite": _on_sqlite}.get(connection.dialect.name, _on_mysql)
    in_order = sorted(results, key=attrgetter("id"))
    for batch in batches(in_order, lambda held: len(results[held] or "")):
        for together, written in write(connection, batch, results):
            if written < len(together):
                refused |= _not_done_by(connection, process_id, together)
    return refused


def complete_available(connection: Connection, process_id: int, results: CompletionResults) -> WriteResult:
    """`complete`, without the rows that another session has locked; in a transaction of its own."""
    available: set[ClaimId] = set()
    for batch in batches(sorted(results, key=attrgetter("id"))):
        for lease, ids in by_lease(batch).items():
            unlocked = lock_available(connection, ids, *is_held(lease))
            available |= {ClaimId(task_id, lease) for task_id in unlocked}
    others = results.keys() - available
    locked = still_held(connection, others)
    refused = complete(connection, process_id, {held: results[held] for held in available})
    return WriteResult(refused | _not_done_by(connection, process_id, others - locked), locked)


def _not_done_by(connection: Connection, process_id: int, claims: Collection[ClaimId]) -> set[ClaimId]:
    """The claims among these that were not completed, neither now nor in an earlier try."""
    by_it = (tasks.c.process_id == process_id, status_is(target(TaskEvent.COMPLETE)))
    return set(claims) - claims_where(connection, claims, lambda lease: (tasks.c.lease == lease, *by_it))


def _on_mysql(connection: Connection, batch: Sequence[ClaimId], results: CompletionResults) -> Iterator[Written]:
    for lease, ids in by_lease(batch).items():
        together = [ClaimId(task_id, lease) for task_id in ids]
        given = {held.id: result for held in together if (result := results[held]) is not None}
        places = 1 << (len(given) - 1).bit_length() if given else 0  # a power of two: there are few statements
        returned = dict(enumerate(given.items()))
        values: dict[str, Any] = {}
        for place in range(places):
            values[f"of_{place}"], values[f"returned_{place}"] = returned.get(place, (0, None))  # no task has the id 0
        yield together, _by_place(places).run(connection, ids=ids, of_lease=lease, **values).rowcount


@lru_cache(maxsize=16)
def _by_place(places: int) -> CompiledStatement:
    """A statement with so many placeholders for results; a task that none of them names has none.

    FIELD finds the place of the id, ELT takes the result there: both are in every server that speaks MySQL's language,
    and JSON_TABLE, which would need one placeholder only, is not.
    """
    of = [sa.bindparam(f"of_{place}", type_=sa.BigInteger()) for place in range(places)]
    returned = [sa.bindparam(f"returned_{place}", type_=sa.Text()) for place in range(places)]
    result = sa.func.elt(sa.func.field(tasks.c.id, *of), *returned) if places else sa.null()
    lease = sa.bindparam("of_lease", type_=sa.BigInteger())
    return _completion_update(id_in_list(tasks.c.id), *is_held(lease), result=result)


def _on_postgresql(connection: Connection, batch: Sequence[ClaimId], results: CompletionResults) -> Iterator[Written]:
    values: dict[str, Any] = {
        "ids": _array_literal(held.id for held in batch),
        "leases": _array_literal(held.lease for held in batch),
    }
    returned = [results[held] for held in batch]
    with_results = any(result is not None for result in returned)
    if with_results:
        values["results"] = returned
    yield batch, _joined(with_results=with_results).run(connection, **values).rowcount


def _array_literal(numbers: Iterable[int]) -> str:
    """An array as PostgreSQL writes it; psycopg makes one of a list in Python, element by element.

    >>> _array_literal([1, 2])
    '{1,2}'
    """
    return f"{{{','.join(map(str, numbers))}}}"


@lru_cache(maxsize=2)
def _joined(*, with_results: bool) -> CompiledStatement:
    """Only the ids are looked up in an index: see `by_id_only`."""
    arrays = {"ids": sa.BigInteger(), "leases": sa.BigInteger()} | ({"results": sa.Text()} if with_results else {})
    columns = [sa.cast(sa.bindparam(name), sa.ARRAY(kind)) for name, kind in arrays.items()]
    given = sa.func.unnest(*columns).table_valued(*arrays, name="given").render_derived()
    guard = sa.case((sa.and_(*is_held(given.c.leases)), sa.true()), else_=sa.false())
    result = given.c.results if with_results else sa.null()
    return _completion_update(tasks.c.id == given.c.ids, guard, result=result)


def _on_sqlite(connection: Connection, batch: Sequence[ClaimId], results: CompletionResults) -> Iterator[Written]:
    given = msgspec.json.encode([(held.id, held.lease, results[held]) for held in batch]).decode()
    yield batch, _listed_in_json().run(connection, given=given).rowcount


@lru_cache(maxsize=1)
def _listed_in_json() -> CompiledStatement:
    element = sa.func.json_each(sa.bindparam("given", type_=sa.Text())).table_valued("value", name="element")
    kinds: dict[str, sa.types.TypeEngine[Any]] = {"id": sa.Integer(), "lease": sa.BigInteger(), "result": sa.Text()}
    extracted = [
        sa.func.json_extract(element.c.value, sa.literal_column(f"'$[{index}]'"), type_=kind).label(name)
        for index, (name, kind) in enumerate(kinds.items())
    ]
    given = sa.select(*extracted).subquery("given")
    return _completion_update(tasks.c.id == given.c.id, *is_held(given.c.lease), result=given.c.result)


def _completion_update(*conditions: sa.ColumnElement[bool], result: Any) -> CompiledStatement:
    values = {
        "status": status_literal(target(TaskEvent.COMPLETE)),
        "result": result,
        "error": sa.null(),
        "progress": sa.literal_column("1.0"),
        "finished_at": now(),
        "updated_at": now(),
        "deadline_at": sa.null(),
    }
    return CompiledStatement(update_by_id(sa.update(tasks).where(*conditions).values(values)))
