"""The claiming process and what it serves, the values that a claim writes, and the result of a claim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from peerd.domain.lifecycle import TaskEvent, target
from peerd.domain.task import Task
from peerd.store.schema.tables import tasks
from peerd.store.tasks.rows import next_lease, status_literal

Lanes = tuple[int, int]
HandlerKey = tuple[str, str]
"""A handler: its queue, and its name there; two queues may each have one of the same name."""
MaxAttemptsDefaults = tuple[int, tuple[tuple[HandlerKey, int], ...]]
"""max_attempts where the row has none: of all tasks, and of those whose handler has its own."""
NODE_PARAMETER: Final = sa.bindparam("node", type_=sa.Integer())
TOKEN_PARAMETER: Final = sa.bindparam("token", type_=sa.BigInteger())


class Claimer(msgspec.Struct, frozen=True, kw_only=True):
    """A process that claims tasks, and the queues that it serves.

    ``default_attempts`` is written as max_attempts where the row has none and ``attempts_of`` does not name its
    handler.
    """

    node_id: int
    incarnation: str
    process_id: int
    queues: tuple[str, ...]
    default_attempts: int = 3
    attempts_of: Mapping[HandlerKey, int] = msgspec.field(default_factory=dict)


class ClaimResult(msgspec.Struct, frozen=True):
    """The claimed tasks in their order, and whether other claimers took some of the candidates."""

    tasks: list[Task]
    lost_candidates: bool = False


def claimer_parameters(claimer: Claimer) -> dict[str, Any]:
    """The parameters that every statement of a claimer has."""
    return {"node": claimer.node_id, "incarnation": claimer.incarnation, "process": claimer.process_id}


def lanes_for(claimer: Claimer, *, quarantined: bool) -> Lanes:
    """The lanes that a claimer may take from: those of quarantined tasks, or those of all others."""
    return (-1, -1 - claimer.node_id) if quarantined else (0, claimer.node_id)


def max_attempts_defaults(claimer: Claimer) -> MaxAttemptsDefaults:
    """The values of max_attempts for rows that have none."""
    return claimer.default_attempts, tuple(sorted(claimer.attempts_of.items()))


def claim_values(defaults: MaxAttemptsDefaults, moment: sa.ColumnElement[Any]) -> dict[str, Any]:
    """The values that a worker's claim writes."""
    general, by_handler = defaults
    default: Any = sa.literal(general, sa.Integer())
    if by_handler:
        own = [(sa.and_(tasks.c.queue == queue, tasks.c.name == name), most) for (queue, name), most in by_handler]
        default = sa.case(*own, else_=default)
    return {**claim_columns(moment), "max_attempts": sa.func.coalesce(tasks.c.max_attempts, default)}


def claim_columns(moment: sa.ColumnElement[Any]) -> dict[str, Any]:
    """The values that every claim writes. All times are one expression: one of them, read back, gives the others."""
    return {
        "status": status_literal(target(TaskEvent.CLAIM)),
        "lease": next_lease(tasks.c.lease),
        "claim_token": TOKEN_PARAMETER,
        "worker_node_id": NODE_PARAMETER,
        "process_id": sa.bindparam("process", type_=sa.BigInteger()),
        "worker_started_at": moment,
        "checked_at": moment,
        "updated_at": moment,
        "progress": None,
        "progress_note": None,
        "deadline_at": None,
    }
