"""The holder's last write: an attempt's outcome. Fenced: it says the lease, and that the task is still working.

Success is one statement for many tasks. Any other outcome is written for its task alone, with a row in ``attempts``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import FINISHED, Event, Status, after, sources, target
from peerd.domain.outcome import Outcome, cut
from peerd.domain.task import Task
from peerd.domain.verdict import Verdict, judge
from peerd.store.clock import now
from peerd.store.rows import batches, becomes, lock_task, select_by_id, status_is, update_tasks
from peerd.store.tables import attempts, tasks

TAKEN_AWAY: Final = ("crash", "rescued", "moved", "retried", "withdrawn")
"""Outcomes that others write about an attempt whose holder is dead, or has lost the task."""


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
    for batch in batches(sorted(results, key=lambda held: held.id)):
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
        return _was_recorded(connection, held)
    apply_verdict(connection, task, judge(task, outcome, database_now(connection)))
    return True


def apply_verdict(connection: Connection, task: Task, verdict: Verdict, *, crashed: bool = False, **more: Any) -> None:
    """Write what becomes of a working task, whose row is locked, and record its attempt."""
    status = after(task.status, verdict.event)
    assert isinstance(status, Status)
    count = int(verdict.counted)
    values: dict[str, Any] = {"status": becomes(status), "attempts": task.attempts + count, "error": verdict.error}
    if crashed:
        values["crashes"] = task.crashes + 1
    if verdict.start_at is not None:
        values["start_at"] = verdict.start_at
    if verdict.event is Event.RESCUE:
        values["start_at"] = now()
    if status in FINISHED:
        values["finished_at"] = now()
    if verdict.event in (Event.RELEASE, Event.SNOOZE):
        values["error"] = task.error
    update_tasks(connection, [task.id], **values | more)
    record_attempt(connection, task, verdict)


def record_attempt(connection: Connection, task: Task, verdict: Verdict) -> None:
    """Write the row of an attempt that did not succeed."""
    connection.execute(
        sa.insert(attempts).values(
            task_id=task.id,
            lease=task.lease,
            number=task.attempts + 1 if verdict.counted else 0,
            node_id=task.worker_node_id,
            process_id=task.process_id,
            started_at=task.worker_started_at,
            ended_at=now(),
            outcome=verdict.label,
            error=verdict.error,
            traceback=verdict.traceback,
            cause=cut(verdict.cause, 255) if verdict.cause else None,
        )
    )


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
            tasks.c.id.in_(sorted(ids)),
            tasks.c.lease == lease,
            tasks.c.process_id == process_id,
            status_is(target(Event.COMPLETE)),
        )
    )
    return sorted(set(ids) - set(connection.execute(done).scalars()))


def _was_recorded(connection: Connection, held: Held) -> bool:
    """Whether an earlier try of this write, whose answer was lost, did it."""
    found = sa.select(attempts.c.id).where(
        attempts.c.task_id == held.id,
        attempts.c.lease == held.lease,
        attempts.c.outcome.not_in(TAKEN_AWAY),
    )
    return connection.execute(found).first() is not None
