"""Deliberate faults of the store, which the machine must notice. Each puts something worse for a piece of the code.

They say what the model is good for: a rule that nothing here breaks would be held by nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain import outcome
from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.store import chore_batches, enqueue, insert, outcomes, rescue, unique_keys
from peerd.store.jobs import holding
from peerd.store.schema.tables import tasks
from peerd.store.schema.types import now, seconds_from_now
from peerd.store.statements import id_in_list
from peerd.store.take import claimer, claiming, eligibility, on_sqlite
from peerd.store.tasks import actions
from peerd.store.tasks.conditions import ASIDE_KINDS, status_is
from peerd.store.tasks.rows import lock_tasks, update_tasks

Mutation = Callable[[pytest.MonkeyPatch], None]


def nothing(*_: Any, **__: Any) -> None:
    """In place of something that writes."""


def instead(module: object, name: str, worse: Any) -> Mutation:
    return lambda patch: patch.setattr(module, name, worse)


def claim_writes(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Mutation:
    original = claiming.ClaimTerms.values
    return lambda patch: patch.setattr(claiming.ClaimTerms, "values", lambda *about: change(original(*about)))


def takes_in_order(*order: sa.ColumnElement[Any]) -> Mutation:
    def mutate(patch: pytest.MonkeyPatch) -> None:
        for module in (eligibility, on_sqlite):
            patch.setattr(module, "CLAIM_ORDER", order)

    return mutate


def kicks_in_order(*order: sa.ColumnElement[Any]) -> Mutation:
    def mutate(patch: pytest.MonkeyPatch) -> None:
        for kind in ASIDE_KINDS.values():
            patch.setattr(kind, "order", order)

    return mutate


def without_columns(*columns: str, where: Callable[[dict[str, Any]], bool]) -> Mutation:
    def update(connection: Connection, ids: Sequence[int], *guard: Any, **values: Any) -> int:
        left = {name: value for name, value in values.items() if name not in columns or not where(values)}
        return update_tasks(connection, ids, *guard, **left)

    return instead(actions, "update_tasks", update)


def touch_by_id(connection: Connection, ids: Sequence[int], *_: Any, **values: Any) -> int:
    return update_tasks(connection, ids, **values)


def held_by_id(*, is_one: bool) -> tuple[sa.ColumnElement[bool], ...]:
    return (tasks.c.id == holding.ID_PARAMETER if is_one else id_in_list(tasks.c.id), status_is(Status.WORKING))


def claim_together(connection: Connection, by: claimer.Claimer, **how: Any) -> Any:
    return CLAIM(connection, by, **how | {"quarantined": False})


def lock_as_claims(*about: Any, **how: Any) -> list[Task]:
    return [msgspec.structs.replace(task, deadline_at=None) for task in lock_tasks(*about, **how)]


def transition_with(transition: Callable[..., Any], **worse: Any) -> Callable[..., Any]:
    return lambda *about: msgspec.structs.replace(transition(*about), **worse)


def columns_without_status(*about: Any) -> dict[str, Any]:
    return {name: value for name, value in COLUMNS(*about).items() if name != "status"}


def soon(seconds: float) -> Any:
    return seconds_from_now(seconds / 10**6)


def verdicts_without_crashes(connection: Connection, judged: Any, **_: Any) -> Any:
    return APPLY_VERDICTS(connection, judged)


CLAIM, COLUMNS, INSERT_MANY, APPLY_VERDICTS = (
    claiming.claim,
    insert._columns,
    insert.insert_many,
    outcomes.apply_verdicts,
)
UNCOUNTED_CRASH: Final = transition_with(outcome.transition_after_crash, counted=False)
IMMEDIATE_RETRY: Final = transition_with(outcome.transition_after, start_at=None)
FAR: Final[sa.ColumnElement[Any]] = sa.literal_column("'9999-01-01 00:00:00.000'")
FAILURES_FIRST: Final = takes_in_order(tasks.c.failures, tasks.c.claim_rank, tasks.c.due_at, tasks.c.id)
LEAST_URGENT: Final = takes_in_order(tasks.c.priority, tasks.c.failures, tasks.c.due_at, tasks.c.id)

MUTATIONS: Final[Mapping[str, tuple[int, Mutation]]] = {
    "claim checked by status alone": (3, instead(outcomes, "is_held", lambda lease: (status_is(Status.WORKING),))),
    "claim checked by lease alone": (0, instead(outcomes, "is_held", lambda lease: (tasks.c.lease == lease,))),
    "touch checked by id alone": (1, instead(outcomes, "update_tasks", touch_by_id)),
    "claim leaves the lease": (0, claim_writes(lambda values: {**values, "lease": tasks.c.lease})),
    "claim leaves checked_at": (0, claim_writes(lambda values: {k: v for k, v in values.items() if k != "checked_at"})),
    "the least urgent is taken": (1, LEAST_URGENT),
    "failures come before priority": (0, FAILURES_FIRST),
    "a take ignores start_at": (1, instead(eligibility, "is_startable", sa.true)),
    "a take serves nodes of any life, and draining ones": (0, instead(eligibility, "is_on_duty", sa.true)),
    "a take serves paused queues": (0, instead(eligibility, "is_open", lambda queue: sa.true())),
    "crashed task claimed beside others": (0, instead(claiming, "claim", claim_together)),
    "lost reply is not found by its token": (0, instead(claiming, "claimed_by_token", lambda *_: [])),
    "retry leaves the lease": (1, without_columns("lease", where=lambda values: "crashes" in values)),
    "move leaves the lease": (8, without_columns("lease", where=lambda values: "node_id" in values)),
    "snooze leaves the deadline": (2, without_columns("deadline_at", where=lambda values: "start_at" in values)),
    "rescue does not count": (0, instead(rescue, "transition_after_crash", UNCOUNTED_CRASH)),
    "rescue looks at the start of the attempt": (0, instead(rescue, "seconds_from_now", soon)),
    "crash is not counted as a crash": (3, instead(rescue, "apply_verdicts", verdicts_without_crashes)),
    "attempts are not recorded": (0, instead(outcomes, "record_attempts", nothing)),
    "last attempt is tried again": (0, instead(outcome, "is_last_attempt", lambda task: False)),
    "retry has no delay": (1, instead(outcomes, "transition_after", IMMEDIATE_RETRY)),
    "repeated completion is refused": (1, instead(outcomes, "_not_done_by", lambda *about: set(about[-1]))),
    "repeated outcome of anyone is accepted": (0, instead(outcomes, "_was_recorded", lambda *_: True)),
    "unique key is forgotten": (0, instead(unique_keys, "_key_still_holds", lambda *_, **__: False)),
    "unique key outlives its task": (4, instead(unique_keys, "delete_keys", nothing)),
    "purged before due": (4, instead(chore_batches, "seconds_from_now", lambda seconds: now())),
    "staged before due": (0, instead(chore_batches, "now", lambda: FAR)),
    "bulk answers in another order": (0, instead(enqueue, "insert_many", lambda *about: INSERT_MANY(*about)[::-1])),
    "scheduled tasks are enqueued as pending": (0, instead(insert, "_columns", columns_without_status)),
    "reservation ends by its id alone": (1, instead(holding, "_is_held", held_by_id)),
    "reservation of a dead process counts an attempt": (4, instead(rescue, "lock_tasks", lock_as_claims)),
    "staged job keeps its start": (10, instead(chore_batches, "start_at_when_pending", lambda: tasks.c.start_at)),
    "youngest is kicked first": (5, kicks_in_order(tasks.c.id.desc())),
    "deleted job leaves its attempts": (0, instead(holding, "_delete_rest", nothing)),
    "touch leaves the deadline": (0, instead(holding, "seconds_from_now", lambda _: tasks.c.deadline_at)),
}
"""Each with a seed that has caught it, which is tried first. What it draws changes with the rules of the machine."""
