"""What a queue client reports of a job that it holds: a result, a failure, progress."""

from __future__ import annotations

from typing import Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import TaskEvent
from peerd.domain.outcome import Failed, transition_after
from peerd.domain.pacing import exponential_backoff
from peerd.domain.task import Task
from peerd.store.outcomes import ClaimId, TaskProgress, apply_verdicts, complete, database_now, is_held, report_progress
from peerd.store.schema.tables import tasks
from peerd.store.tasks.rows import LARGEST_INTEGER, lock_tasks


class RecordedFailure(msgspec.Struct, frozen=True):
    """The failure of a job was written; ``retry_in`` is seconds until its next attempt, None if there is none."""

    retry_in: float | None


def complete_held(connection: Connection, process_id: int, claim: ClaimId, result: str | None) -> bool:
    """Write a reserved job as done, with a result (JSON text); return whether it was held."""
    return claim not in complete(connection, process_id, {claim: result})


def fail_held(
    connection: Connection, process_id: int, claim: ClaimId, reason: str, retry: float | Literal[False] | None
) -> RecordedFailure | Literal[False]:
    """End the attempt of a reserved job without success, and record it.

    Args:
        connection: in a transaction.
        process_id: the holder.
        claim: the reservation.
        reason: the error of the attempt.
        retry: seconds until the next attempt, False if there is none, None for the usual back-off.

    Returns:
        What follows; False if it was not held.
    """
    locked = lock_tasks(connection, [claim.id], *is_held(claim.lease), tasks.c.process_id == process_id)
    if not locked:
        return False
    [task] = locked
    # to a queue client, no number of attempts means any number
    tried = msgspec.structs.replace(task, max_attempts=task.max_attempts or LARGEST_INTEGER)
    retry_in = _retry_in(task, retry)
    verdict = transition_after(tried, Failed(error=reason, retry_in=retry_in), database_now(connection))
    apply_verdicts(connection, [(task, verdict)])
    return RecordedFailure(retry_in if verdict.event is TaskEvent.FAIL else None)


def report_held(connection: Connection, process_id: int, claim: ClaimId, fraction: float, note: str | None) -> bool:
    """Write the progress of a reserved job; return whether it is held."""
    held = sa.select(tasks.c.id).where(tasks.c.id == claim.id, tasks.c.process_id == process_id)
    if connection.execute(held).first() is None:
        return False
    return claim not in report_progress(connection, {claim: TaskProgress(fraction, note)}).refused


def _retry_in(task: Task, retry: float | Literal[False] | None) -> float | None:
    if retry is False:
        return None
    return exponential_backoff(task.attempts + 1) if retry is None else retry
