"""Which tasks may be taken, and what a take writes: for a worker's claim and for a client's reservation, each once."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple, Protocol

import sqlalchemy as sa

from peerd.domain.lifecycle import TaskEvent, sources, target
from peerd.domain.limit import WHOLE_QUEUE
from peerd.store.schema.tables import CLAIM_ORDER, limits, nodes, queues, tasks
from peerd.store.schema.types import now
from peerd.store.tasks.conditions import PENDING_WITH_KEY, PENDING_WITHOUT_KEY, TaskKind, by_index, status_is
from peerd.store.tasks.rows import next_lease, status_literal

Lanes = tuple[int, ...]
NODE_PARAMETER: Final = sa.bindparam("node", type_=sa.Integer())
INCARNATION_PARAMETER: Final = sa.bindparam("incarnation", type_=sa.String())
TOKEN_PARAMETER: Final = sa.bindparam("token", type_=sa.BigInteger())
LIMIT_PARAMETER: Final = sa.bindparam("limit", type_=sa.Integer())
MAX_QUEUES: Final = 256
"""Queues in one statement."""


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

    columns: ClassVar[tuple[str, ...]]
    """The columns that are read of a task, as they are after it was taken."""

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


# ---------------------------------------------------------------- lanes
# The parts of a queue's pending tasks, by the column ``lane``: tasks for any node (0), those pinned to one node (its
# id), or those of either that are quarantined because they have crashed a process (below 0). The first tasks of a lane
# are an exact range of the claim's index.


def quarantined_lane(lane: int) -> int:
    """The lane of the tasks of a lane that have crashed a process; of such a lane, the one that they would be in.

    >>> quarantined_lane(0), quarantined_lane(7), quarantined_lane(-8)
    (-1, -8, 7)
    """
    return -1 - lane


@lru_cache(maxsize=64)
def lanes_of_node(node_id: int) -> Lanes:
    """The lanes of tasks that a process of this node may run beside others."""
    return 0, node_id


@lru_cache(maxsize=64)
def quarantined_lanes(node_id: int) -> Lanes:
    """The lanes of tasks that a process of this node must run alone."""
    return tuple(map(quarantined_lane, lanes_of_node(node_id)))


@lru_cache(maxsize=64)
def all_lanes(node_id: int) -> Lanes:
    """The lanes from which a queue client may reserve.

    No handler runs in the process that reserves for a client, so a quarantined task endangers nothing in it.
    """
    return lanes_of_node(node_id) + quarantined_lanes(node_id)


# ---------------------------------------------------------------- conditions


def is_startable() -> sa.ColumnElement[bool]:
    """The conditions that concern the times of a row."""
    return sa.and_(tasks.c.due_at <= now(), sa.or_(tasks.c.finish_at.is_(None), tasks.c.finish_at > now()))


def is_on_duty() -> sa.ColumnElement[bool]:
    """The taker's node is the one that its process belongs to, and is not draining."""
    mine = (nodes.c.id == NODE_PARAMETER, nodes.c.incarnation == INCARNATION_PARAMETER)
    return sa.exists().where(*mine, sa.not_(nodes.c.draining)).correlate_except(nodes)


def is_paused() -> sa.ColumnElement[bool]:
    """A row of `queues` is paused now."""
    ends_later = sa.or_(queues.c.paused_until.is_(None), queues.c.paused_until > now())
    return sa.and_(queues.c.paused, ends_later)


def is_open(queue: Any) -> sa.ColumnElement[bool]:
    """A queue is not paused."""
    return sa.not_(sa.exists().where(queues.c.name == queue, is_paused()).correlate_except(queues))


def is_limited(queue: Any) -> sa.ColumnElement[bool]:
    """A queue as a whole has a limit: all of it is taken by turns of the queue (`peerd.store.take.turns`)."""
    return sa.exists().where(limits.c.queue == queue, limits.c.limit_key == WHOLE_QUEUE).correlate_except(limits)


def is_takeable(
    lanes: Lanes, *more: sa.ColumnElement[bool], event: TaskEvent = TaskEvent.CLAIM, with_key: bool = False
) -> sa.ColumnElement[bool]:
    """The conditions that concern a row, repeated when it is locked or written.

    A CASE, so that PostgreSQL looks up nothing but the ids in an index.

    Args:
        lanes: those that the claimer may take from.
        more: conditions that must hold, too.
        event: a claim, or the reservation of a job that was named by its id and may be delayed or buried.
        with_key: the task may have a limit key.
    """
    ends_later = sa.or_(tasks.c.finish_at.is_(None), tasks.c.finish_at > now())
    conditions = [
        status_is(*sources(event)),
        tasks.c.lane.in_([sa.literal_column(str(lane)) for lane in lanes]),
        is_startable() if event is TaskEvent.CLAIM else ends_later,
        *more,
    ]
    if not with_key:
        conditions.append(tasks.c.limit_key.is_(None))
    return sa.case((sa.and_(*conditions), sa.true()), else_=sa.false())


def head_of_lane(queue: Any, lane: Any, *columns: Any, limit: Any = LIMIT_PARAMETER) -> sa.Select[Any]:
    """The first tasks of a lane of a queue that have no limit key, in the order of the claim's index."""
    conditions = (PENDING_WITHOUT_KEY.of(queue), tasks.c.lane == lane, is_startable())
    head = sa.select(*columns).where(*conditions).order_by(*CLAIM_ORDER).limit(limit)
    return by_index(head, PENDING_WITHOUT_KEY.index)


def first_rank(pending: TaskKind, queue: Any, lane: Any) -> sa.Select[Any]:
    """The rank of the first pending task of a kind in a lane, whether or not it may start now."""
    mine = (pending.of(queue), tasks.c.lane == lane)
    return by_index(sa.select(tasks.c.claim_rank).where(*mine).order_by(tasks.c.claim_rank).limit(1), pending.index)


# ---------------------------------------------------------------- queues and lanes as tables, on PostgreSQL and SQLite


def queue_table(kind: str, name: str = "queue_names") -> sa.Select[Any]:
    """A select of the queues that the parameter ``queues`` lists (see `list_parameter`), as the column ``queue``.

    One text serves any number of them: a client may watch hundreds of tubes, and each client others.
    """
    if kind == "sqlite":
        text = sa.bindparam("queues", type_=sa.Text())
        listed = sa.func.json_each(text).table_valued("value", name=f"{name}_list")
        return sa.select(listed.c.value.label("queue"))
    array = sa.cast(sa.bindparam("queues"), sa.ARRAY(sa.Text()))
    unnested = sa.func.unnest(array).table_valued("queue", name=f"{name}_list").render_derived()
    return sa.select(unnested.c.queue)


def lane_table(lanes: Lanes) -> sa.Subquery:
    """The lanes as the column ``lane``."""
    numbers = [sa.literal_column(str(lane), sa.Integer()).label("lane") for lane in lanes]
    return sa.union_all(*(sa.select(number) for number in numbers)).subquery("lanes")


def open_queues(kind: str, lanes: Lanes, *, beside_limits: bool) -> sa.Subquery:
    """The queues from which may be taken, those without a limit of their own.

    Without ``beside_limits`` there are none while any of them has tasks, in these lanes, that count for a limit.
    """
    listed = queue_table(kind).subquery("queue_names")
    conditions = [is_on_duty(), is_open(listed.c.queue), sa.not_(is_limited(listed.c.queue))]
    if not beside_limits:
        conditions.append(sa.not_(sa.exists(_queues_with_limited_tasks(kind, lanes))))
    return sa.select(listed.c.queue).where(*conditions).subquery("open_queue")


def _queues_with_limited_tasks(kind: str, lanes: Lanes) -> sa.Select[Any]:
    listed = queue_table(kind, "limited_names").subquery("limited_name")
    keyed, unkeyed = (
        _has_pending(pending, listed.c.queue, lanes) for pending in (PENDING_WITH_KEY, PENDING_WITHOUT_KEY)
    )
    return sa.select(listed.c.queue).where(sa.or_(keyed, sa.and_(is_limited(listed.c.queue), unkeyed)))


def _has_pending(pending: TaskKind, queue: sa.ColumnElement[str], lanes: Lanes) -> sa.Exists:
    mine = sa.or_(*(tasks.c.lane == sa.literal_column(str(lane)) for lane in lanes))
    return sa.exists(by_index(sa.select(tasks.c.id).where(pending.of(queue), mine), pending.index))
