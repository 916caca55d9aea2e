"""The holder's last write where it is not success: the outcome of an attempt.

Fenced: it repeats the lease, and the status working. Success is `peerd.store.outcomes.complete`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import FINISHED, Status, TaskEvent, after, sources
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
from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import attempts, tasks
from peerd.store.tasks.conditions import select_by_id, status_is
from peerd.store.tasks.rows import (
    LARGEST_INTEGER,
    batches,
    by_id_only,
    incremented,
    lock_tasks,
    status_literal,
    update_tasks,
)
from peerd.store.upserts import insert_if_absent


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
    """That a claim is still held: the guard of the holder's every write."""
    return (tasks.c.lease == lease, status_is(*sources(TaskEvent.COMPLETE)))


def still_held(connection: Connection, claims: Iterable[ClaimId]) -> set[ClaimId]:
    """Those among these claims that are held, by what is committed: read without locks."""
    return claims_where(connection, claims, is_held)


def claims_where(
    connection: Connection,
    claims: Iterable[ClaimId],
    conditions: Callable[[int], tuple[sa.ColumnElement[bool], ...]],
) -> set[ClaimId]:
    """Those among these claims whose rows meet the conditions that belong to their lease; read without locks."""
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
