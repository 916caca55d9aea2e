"""Deliberate faults of the store, which the machine must notice. Each puts something worse for a piece of the code.

They say what the model is good for: a rule that nothing here breaks would be held by nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Connection

from peerd.domain import task_transition
from peerd.domain.lifecycle import Status, TaskEvent, sources
from peerd.store.claim import candidates, claim, claimer, compare_and_set
from peerd.store.enqueue import enqueue, insert, unique_keys
from peerd.store.jobs import candidates as job_candidates
from peerd.store.jobs import held, kicking
from peerd.store.maintenance import chore_batches, rescue
from peerd.store.outcomes import complete, recording, touch
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import CLAIM_ORDER, tasks
from peerd.store.statements.compiled import id_in_list
from peerd.store.tasks import effects
from peerd.store.tasks.conditions import status_is
from peerd.store.tasks.rows import lock_tasks, update_tasks

Mutation = Callable[[pytest.MonkeyPatch], None]


def nothing(*_: Any, **__: Any) -> None:
    """In place of something that writes."""


def without_columns(
    patch: pytest.MonkeyPatch, module: Any, *columns: str, where: Callable[[dict[str, Any]], bool] = lambda _: True
) -> None:
    """Let a module forget to write columns, in the updates of which ``where`` is true."""
    original = module.update_tasks

    def update(connection: Connection, ids: Sequence[int], *guard: Any, **values: Any) -> int:
        left = {name: value for name, value in values.items() if name not in columns or not where(values)}
        return int(original(connection, ids, *guard, **left))

    patch.setattr(module, "update_tasks", update)


def claim_checked_by_status_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recording, "is_held", lambda lease: (status_is(*sources(TaskEvent.COMPLETE)),))


def claim_checked_by_lease_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recording, "is_held", lambda lease: (tasks.c.lease == lease,))


def touch_checked_by_id_alone(patch: pytest.MonkeyPatch) -> None:
    original = update_tasks
    patch.setattr(touch, "update_tasks", lambda connection, ids, *_, **values: original(connection, ids, **values))


def claim_leaves_the_lease(patch: pytest.MonkeyPatch) -> None:
    _claim_writes(patch, lambda values: {**values, "lease": tasks.c.lease})


def claim_leaves_checked_at(patch: pytest.MonkeyPatch) -> None:
    _claim_writes(patch, lambda values: {name: value for name, value in values.items() if name != "checked_at"})


def _claim_writes(patch: pytest.MonkeyPatch, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    original = claimer.claim_values
    for module in (claim, compare_and_set):
        patch.setattr(module, "claim_values", lambda *about: change(original(*about)))


def claim_puts_attempts_before_priority(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(candidates, "CLAIM_ORDER", (tasks.c.attempts, tasks.c.claim_rank, tasks.c.due_at, tasks.c.id))


def claim_takes_the_least_urgent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(candidates, "CLAIM_ORDER", (tasks.c.priority, tasks.c.attempts, tasks.c.due_at, tasks.c.id))


def claim_ignores_start_at(patch: pytest.MonkeyPatch) -> None:
    for module in (candidates, compare_and_set):
        patch.setattr(module, "is_startable", lambda: tasks.c.id > 0)


def claim_serves_nodes_of_any_life(patch: pytest.MonkeyPatch) -> None:
    """The node's row is not asked: a draining node, or an earlier life, goes on claiming."""
    _claim_does_not_ask(patch, "nodes")


def claim_serves_paused_queues(patch: pytest.MonkeyPatch) -> None:
    _claim_does_not_ask(patch, "queues")


def _claim_does_not_ask(patch: pytest.MonkeyPatch, table: str) -> None:
    original = candidates._lane_head

    def head(queue: str, lane: int, limit: Any) -> sa.Select[Any]:
        select = original(queue, lane, limit)
        assert isinstance(select.whereclause, sa.BooleanClauseList)
        clauses = select.whereclause.clauses
        asked = [f"FROM {table}" in str(clause.compile(dialect=sqlite.dialect())) for clause in clauses]
        assert sum(asked) == 1
        kept = [sa.or_(clause, tasks.c.id > 0) if asks else clause for clause, asks in zip(clauses, asked, strict=True)]
        return sa.select(*CLAIM_ORDER).where(*kept).order_by(*CLAIM_ORDER).limit(limit)

    patch.setattr(candidates, "_lane_head", head)


def crashed_task_claimed_beside_others(patch: pytest.MonkeyPatch) -> None:
    original = claim.claim
    patch.setattr(
        claim, "claim", lambda connection, claimer, **how: original(connection, claimer, **how | {"quarantined": False})
    )


def lost_reply_is_not_found_by_its_token(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(claim, "claimed_by_token", lambda *_: [])


def retry_leaves_the_lease(patch: pytest.MonkeyPatch) -> None:
    without_columns(patch, effects, "lease", where=lambda values: "crashes" in values)


def move_leaves_the_lease(patch: pytest.MonkeyPatch) -> None:
    without_columns(patch, effects, "lease", where=lambda values: "node_id" in values)


def rescue_does_not_count(patch: pytest.MonkeyPatch) -> None:
    original = task_transition.transition_after_crash
    patch.setattr(
        rescue, "transition_after_crash", lambda *about: msgspec.structs.replace(original(*about), counted=False)
    )


def rescue_looks_at_the_start_of_the_attempt(patch: pytest.MonkeyPatch) -> None:
    """Touching does not help: whatever runs for long is taken away."""
    original = seconds_from_now
    patch.setattr(rescue, "seconds_from_now", lambda seconds: original(seconds / 10**6))


def crash_is_not_counted_as_a_crash(patch: pytest.MonkeyPatch) -> None:
    original = recording.apply_verdicts
    patch.setattr(rescue, "apply_verdicts", lambda connection, judged, **_: original(connection, judged))


def attempts_are_not_recorded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recording, "record_attempts", nothing)


def last_attempt_is_tried_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(task_transition, "is_last_attempt", lambda task: False)


def retry_has_no_delay(patch: pytest.MonkeyPatch) -> None:
    """The original's fault, at its first retry."""
    original = task_transition.transition_after
    patch.setattr(
        recording, "transition_after", lambda *about: msgspec.structs.replace(original(*about), start_at=None)
    )


def repeated_completion_is_refused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(complete, "_not_done_by", lambda connection, process_id, claims: set(claims))


def repeated_outcome_of_anyone_is_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recording, "_was_recorded", lambda *_: True)


def unique_key_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(unique_keys, "_key_still_holds", lambda *_, **__: False)


def unique_key_outlives_its_task(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(unique_keys, "delete_keys", nothing)


def purged_before_due(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(chore_batches, "seconds_from_now", lambda seconds: now())


def staged_before_due(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(chore_batches, "now", lambda: sa.literal_column("'9999-01-01 00:00:00.000'"))


def bulk_answers_in_another_order(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(enqueue, "insert_many", lambda *about: insert.insert_many(*about)[::-1])


def scheduled_tasks_are_enqueued_as_pending(patch: pytest.MonkeyPatch) -> None:
    original = insert._columns
    patch.setattr(
        insert,
        "_columns",
        lambda *about: {name: value for name, value in original(*about).items() if name != "status"},
    )


def reservation_ends_by_its_id_alone(patch: pytest.MonkeyPatch) -> None:
    def is_held(*, is_one: bool) -> tuple[sa.ColumnElement[bool], ...]:
        return (tasks.c.id == held.ID_PARAMETER if is_one else id_in_list(tasks.c.id), status_is(Status.WORKING))

    patch.setattr(held, "_is_held", is_held)


def reservation_of_a_dead_process_counts_an_attempt(patch: pytest.MonkeyPatch) -> None:
    original = lock_tasks
    patch.setattr(
        rescue,
        "lock_tasks",
        lambda *about, **how: [msgspec.structs.replace(task, deadline_at=None) for task in original(*about, **how)],
    )


def staged_job_keeps_its_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(chore_batches, "start_at_when_pending", lambda: tasks.c.start_at)


def youngest_is_kicked_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kicking, "aside_order", lambda: (tasks.c.id.desc(),))


def deleted_job_leaves_its_attempts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(held, "_delete_rest", nothing)


def touch_leaves_the_deadline(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(held, "seconds_from_now", lambda _: tasks.c.deadline_at)


def least_urgent_is_reserved_first(patch: pytest.MonkeyPatch) -> None:
    order = (tasks.c.claim_rank.desc(), tasks.c.attempts, tasks.c.due_at, tasks.c.id)
    patch.setattr(job_candidates, "CLAIM_ORDER", order)


MUTATIONS: Final[tuple[Mutation, ...]] = (
    claim_checked_by_status_alone,
    claim_checked_by_lease_alone,
    touch_checked_by_id_alone,
    claim_leaves_the_lease,
    claim_leaves_checked_at,
    claim_takes_the_least_urgent,
    claim_ignores_start_at,
    crashed_task_claimed_beside_others,
    lost_reply_is_not_found_by_its_token,
    rescue_does_not_count,
    rescue_looks_at_the_start_of_the_attempt,
    crash_is_not_counted_as_a_crash,
    attempts_are_not_recorded,
    last_attempt_is_tried_again,
    retry_has_no_delay,
    repeated_completion_is_refused,
    repeated_outcome_of_anyone_is_accepted,
    unique_key_is_forgotten,
    purged_before_due,
    staged_before_due,
    bulk_answers_in_another_order,
    scheduled_tasks_are_enqueued_as_pending,
    reservation_ends_by_its_id_alone,
    reservation_of_a_dead_process_counts_an_attempt,
    staged_job_keeps_its_start,
    youngest_is_kicked_first,
    touch_leaves_the_deadline,
    least_urgent_is_reserved_first,
)
RARELY_CAUGHT: Final[tuple[Mutation, ...]] = (
    move_leaves_the_lease,
    retry_leaves_the_lease,
    claim_serves_paused_queues,
    claim_puts_attempts_before_priority,
    claim_serves_nodes_of_any_life,
    unique_key_outlives_its_task,
    deleted_job_leaves_its_attempts,
)
"""Those that show themselves only where several rare things meet."""
CAUGHT_BY: Final[Mapping[Mutation, int]] = {
    claim_checked_by_status_alone: 1,
    claim_takes_the_least_urgent: 1,
    claim_puts_attempts_before_priority: 1,
    rescue_does_not_count: 1,
    crash_is_not_counted_as_a_crash: 3,
    last_attempt_is_tried_again: 1,
    repeated_completion_is_refused: 1,
    purged_before_due: 1,
    reservation_of_a_dead_process_counts_an_attempt: 2,
    least_urgent_is_reserved_first: 2,
    move_leaves_the_lease: 2,
    retry_leaves_the_lease: 3,
    unique_key_outlives_its_task: 4,
    deleted_job_leaves_its_attempts: 8,
}
"""A seed that has caught each, where the first one does not: it is tried first. What it draws changes with the rules of
the machine; if it catches the mutation no more, the others are tried as well, which takes longer."""
