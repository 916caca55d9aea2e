"""The process that takes tasks, the values that each take writes, and the result of a claim."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import sqlalchemy as sa

from peerd.domain.lifecycle import TaskEvent, target
from peerd.domain.task import Task
from peerd.store.schema.tables import tasks
from peerd.store.take.eligibility import NODE_PARAMETER
from peerd.store.tasks.rows import next_lease, status_literal

HandlerKey = tuple[str, str]
"""A handler: its queue, and its name there; two queues may each have one of the same name."""
MaxAttemptsDefaults = tuple[int, tuple[tuple[HandlerKey, int], ...]]
"""max_attempts where the row has none: of all tasks, and of those whose handler has its own."""
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

    def parameters(self) -> dict[str, Any]:
        """The parameters of statements that write."""
        return {"node": self.node_id, "incarnation": self.incarnation, "process": self.process_id}

    def duty_parameters(self) -> dict[str, Any]:
        """The parameters of `peerd.store.take.eligibility.is_on_duty`."""
        return {"node": self.node_id, "incarnation": self.incarnation}

    def max_attempts_defaults(self) -> MaxAttemptsDefaults:
        """The values of max_attempts for rows that have none."""
        return self.default_attempts, tuple(sorted(self.attempts_of.items()))


class ClaimResult(msgspec.Struct, frozen=True):
    """The claimed tasks in their order, and whether other claimers took some of the candidates."""

    tasks: list[Task]
    lost_candidates: bool = False


class LaneRanks(NamedTuple):
    """The first ranks of a lane of a queue; None where there is no task.

    Attributes:
        queue: its name.
        lane: one of `peerd.store.take.eligibility.all_lanes`.
        is_limited: whether the queue as a whole has a limit.
        keyed: of tasks with a limit key.
        unkeyed: of tasks without one.
        plain: of tasks that may be taken now, and that count for no limit.
    """

    queue: str
    lane: int
    is_limited: bool
    keyed: int | None
    unkeyed: int | None
    plain: int | None

    @property
    def limited(self) -> int | None:
        """The first rank of tasks that count for a limit."""
        ranks = (self.keyed, self.unkeyed if self.is_limited else None)
        return min((rank for rank in ranks if rank is not None), default=None)


class Terms(Hashable, Protocol):
    """What differs between the takes of a worker and of a queue client; a statement is made once for each."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that are read of a task, as they are after it was taken."""
        ...

    def values(self, moment: sa.ColumnElement[Any]) -> dict[str, Any]:
        """The values that are written; ``moment`` is the time of the take."""
        ...


def taken_columns(moment: sa.ColumnElement[Any]) -> dict[str, Any]:
    """The values that every take writes. All times are one expression: one of them, read back, gives the others."""
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
