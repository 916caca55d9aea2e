"""What a claim writes: who holds a task from now on."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from peerd.domain.lifecycle import TaskEvent, target
from peerd.store.claim.claimer import NODE_PARAMETER, MaxAttemptsDefaults
from peerd.store.schema.tables import tasks
from peerd.store.tasks.rows import next_lease, status_literal

TOKEN_PARAMETER: Final = sa.bindparam("token", type_=sa.BigInteger())


def claim_values(defaults: MaxAttemptsDefaults, moment: sa.ColumnElement[Any]) -> dict[str, Any]:
    """What a claim writes. Its moments are one: what is told of one of them holds for the others."""
    general, by_handler = defaults
    default: Any = sa.literal(general, sa.Integer())
    if by_handler:
        own = [(sa.and_(tasks.c.queue == queue, tasks.c.name == name), most) for (queue, name), most in by_handler]
        default = sa.case(*own, else_=default)
    return {
        "status": status_literal(target(TaskEvent.CLAIM)),
        "lease": next_lease(tasks.c.lease),
        "claim_token": TOKEN_PARAMETER,
        "worker_node_id": NODE_PARAMETER,
        "process_id": sa.bindparam("process", type_=sa.BigInteger()),
        "worker_started_at": moment,
        "checked_at": moment,
        "updated_at": moment,
        "max_attempts": sa.func.coalesce(tasks.c.max_attempts, default),
        "progress": None,
        "progress_note": None,
    }
