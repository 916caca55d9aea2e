"""The holder's last write: an attempt's outcome. Fenced: it says the lease, and that the task is still working.

Success is one statement for many tasks. Any other outcome is written for its task alone, with a row in ``attempts``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import FINISHED, Event, Status, after, sources, target
from peerd.domain.outcome import ERROR_LIMIT, TRACEBACK_LIMIT, Outcome, cut
from peerd.domain.task import Task
from peerd.domain.verdict import Verdict, judge, labels_of
from peerd.store.clock import now
from peerd.store.rows import (
    LARGEST_INTEGER,
    batches_by_size,
    becomes,
    by_id_alone,
    insert_if_absent,
    lock_task,
    one_more,
    select_by_id,
    status_is,
    update_tasks,
)
from peerd.store.tables import attempts, tasks


class Held(msgspec.Struct, frozen=True):
    """What names a claim: the task, and the lease that the claim raised."""

    id: int
    lease: int


def complete(connection: Connection, process_id: int, results: Mapping[Held, str | None]) -> set[Held]:
    """Write tasks as done, with their results (JSON text).

    It may be repeated after a lost reply: what it had written counts as accepted.

    Returns:
        the claims that were refused, because they are not held any more.
    """
    refused: set[Held] = set()
    in_order = sorted(results, key=lambda held: held.id)
    for batch in batches_by_size(in_order, lambda held: len(results[held] or "")):
        for lease, ids in by_lease(batch).items():
            by_id = {task_id: results[Held(task_id, lease)] for task_id in ids}
            refused |= {Held(task_id, lease) for task_id in _complete(connection, process_id, lease, by_id)}
    return refused


def conclude(connection: Connection, process_id: int, held: Held, outcome: Outcome) -> bool:
    """Write any outcome but done: the task's new status and a row in ``attempts``.

    It may be repeated after a lost reply.

    Returns:
        False when it was refused, because the task is not held any more.
    """
    task = lock_task(connection, held.id, *_is_held(held.lease))
    if task is None:
        return _was_recorded(connection, process_id, held, outcome)
    apply_verdicts(connection, [(task, judge(task, outcome, database_now(connection)))])
    return True


def apply_verdicts(connection: Connection, judged: Iterable[tuple[Task, Verdict]], *, crashed: bool = False) -> None:
    """Write what becomes of working tasks, whose rows are locked, and record their attempts.

    Tasks of which the same is to be said are written together.

    Args:
        connection: the transaction that locked the rows.
        judged: the tasks and the verdicts on them.
        crashed: whether their process died of it, or with it.
    """
    alike: dict[Verdict, list[Task]] = defaultdict(list)
    for task, verdict in judged:
        alike[verdict].append(task)
    for verdict, judged_alike in alike.items():
        ids = [task.id for task in judged_alike]
        update_tasks(connection, ids, status_is(Status.WORKING), **_values_of(verdict, crashed=crashed))
        record_attempts(connection, judged_alike, verdict)


def record_attempts(connection: Connection, judged: Sequence[Task], verdict: Verdict) -> None:
    """Write the rows of attempts that did not succeed. One that a claim already has stays as it is."""
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


def _values_of(verdict: Verdict, *, crashed: bool) -> dict[str, Any]:
    """The columns that a verdict changes."""
    status = after(Status.WORKING, verdict.event)
    assert isinstance(status, Status)
    values: dict[str, Any] = {"status": becomes(status)}
    if verdict.counted:
        values["attempts"] = one_more(tasks.c.attempts)
    if crashed:
        values["crashes"] = one_more(tasks.c.crashes)
    if verdict.start_at is not None:
        values["start_at"] = verdict.start_at
    if verdict.event is Event.RESCUE:
        values["start_at"] = now()
    if status in FINISHED:
        values["finished_at"] = now()
    if verdict.event not in (Event.RELEASE, Event.SNOOZE):
        values["error"] = _cut(verdict.error, ERROR_LIMIT)
    return values


def _cut(text: str | None, limit: int) -> str | None:
    return None if text is None else cut(text, limit)


def database_now(connection: Connection) -> datetime:
    """What time it is, by the only clock that decides."""
    moment = connection.execute(sa.select(now())).scalar_one()
    assert isinstance(moment, datetime)
    return moment


def _is_held(lease: int) -> tuple[sa.ColumnElement[bool], ...]:
    return (tasks.c.lease == lease, status_is(*sources(Event.COMPLETE)))


def by_lease(batch: Iterable[Held]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = defaultdict(list)
    for held in batch:
        groups[held.lease].append(held.id)
    return groups


def _complete(connection: Connection, process_id: int, lease: int, results: Mapping[int, str | None]) -> Sequence[int]:
    given = {task_id: result for task_id, result in results.items() if result is not None}
    result = sa.case(given, value=tasks.c.id, else_=sa.null()) if given else sa.null()
    written = update_tasks(
        connection,
        list(results),
        *_is_held(lease),
        status=becomes(target(Event.COMPLETE)),
        result=result,
        error=None,
        progress=1.0,
        finished_at=now(),
    )
    return [] if written == len(results) else _not_done_by(connection, process_id, lease, list(results))


def _not_done_by(connection: Connection, process_id: int, lease: int, ids: Sequence[int]) -> list[int]:
    """Those among these that this claim did not complete, neither now nor in an earlier try."""
    done = select_by_id(
        sa.select(tasks.c.id).where(
            *by_id_alone(
                connection,
                ids,
                (tasks.c.lease == lease, tasks.c.process_id == process_id, status_is(target(Event.COMPLETE))),
            )
        )
    )
    return sorted(set(ids) - set(connection.execute(done).scalars()))


def _was_recorded(connection: Connection, process_id: int, held: Held, outcome: Outcome) -> bool:
    """Whether an earlier try of this write, whose answer was lost, did it."""
    found = sa.select(attempts.c.id).where(
        attempts.c.task_id == held.id,
        attempts.c.lease == held.lease,
        attempts.c.process_id == process_id,
        attempts.c.outcome.in_(labels_of(outcome)),
    )
    return connection.execute(found).first() is not None
