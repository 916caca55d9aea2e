"""The handlers that each process knows, in ``processes.handlers``; see `peerd.domain.known_handlers`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.known_handlers import KnownHandlers, KnownHandlersSnapshot, find_misfit
from peerd.domain.lifecycle import Status
from peerd.domain.outcome import RELEASED_LABEL, UNKNOWN_LABEL
from peerd.domain.task import Task
from peerd.store.schema.tables import attempts, processes, tasks
from peerd.store.schema.types import now, seconds_from_now
from peerd.store.tasks.conditions import is_waiting_as

HEARTBEAT_WITHIN: Final = 60.0
"""Seconds since its last heartbeat for which a process counts as alive."""
MAX_EXAMINED: Final = 500
"""Maximum of waiting tasks that `count_unknown_handlers` reads."""
MAX_RELEASE_DELAY: Final = 60.0
"""Maximum of seconds for which a task is released."""


class UnknownHandler(msgspec.Struct, frozen=True):
    """Tasks of one handler that no process knows yet."""

    queue: str
    name: str
    count: int
    error: str


def encode_handlers(knowledge: KnownHandlers) -> str:
    """The handlers of a process, as text for its row."""
    return msgspec.json.encode(knowledge).decode()


def read_known_handlers(connection: Connection, task: Task, unknown_after: float) -> KnownHandlersSnapshot:
    """The handlers known in the cluster, or on the node that a task is pinned to, for a task whose handler is unknown.

    The handlers of a process count until ``unknown_after`` seconds after its end.
    """
    moment = connection.execute(sa.select(now())).scalar_one()
    return KnownHandlersSnapshot(
        moment, _first_released_at(connection, task.id), _handlers(connection, unknown_after, task.node_id)
    )


def read_misfit(connection: Connection, queue: str, name: str, body: str | None) -> str | None:
    """Why no process that is alive can run a task; see `find_misfit`."""
    return find_misfit(_handlers(connection), queue, name, body)


def _handlers(connection: Connection, unknown_after: float = 0.0, node_id: int | None = None) -> list[KnownHandlers]:
    """The handlers of processes that are alive, or have ended within some seconds."""
    alive = sa.and_(
        processes.c.ended_at.is_(None), processes.c.checked_at > seconds_from_now(-max(unknown_after, HEARTBEAT_WITHIN))
    )
    counts = sa.or_(alive, processes.c.ended_at > seconds_from_now(-unknown_after))
    known = sa.select(processes.c.handlers).distinct().where(processes.c.handlers.is_not(None), counts)
    if node_id is not None:
        known = known.where(processes.c.node_id == node_id)
    return [decode_handlers(text) for text in connection.execute(known).scalars()]


def count_unknown_handlers(connection: Connection) -> Sequence[UnknownHandler]:
    """The tasks that were released because a process did not know their handler, among the next that are due."""
    soon = tasks.c.due_at <= seconds_from_now(MAX_RELEASE_DELAY)
    released = (
        sa.select(tasks.c.id, tasks.c.queue, tasks.c.name, tasks.c.lease, tasks.c.error)
        .where(is_waiting_as(Status.SCHEDULED), soon)
        .order_by(tasks.c.due_at)
        .limit(MAX_EXAMINED)
        .subquery()
    )
    of_claim = sa.and_(attempts.c.task_id == released.c.id, attempts.c.lease == released.c.lease)
    found = (
        sa.select(released.c.queue, released.c.name, sa.func.count(), sa.func.max(released.c.error))
        .join_from(released, attempts, of_claim)
        .where(attempts.c.outcome == UNKNOWN_LABEL)
        .group_by(released.c.queue, released.c.name)
        .order_by(released.c.queue, released.c.name)
    )
    return [UnknownHandler(*row) for row in connection.execute(found)]


def _first_released_at(connection: Connection, task_id: int) -> datetime | None:
    """When a task was first released as unknown since its last run; None if it was not."""
    ran = sa.and_(attempts.c.task_id == task_id, attempts.c.outcome.not_in([UNKNOWN_LABEL, RELEASED_LABEL]))
    last = sa.select(sa.func.coalesce(sa.func.max(attempts.c.lease), -1)).where(ran).scalar_subquery()
    released = sa.and_(attempts.c.task_id == task_id, attempts.c.outcome == UNKNOWN_LABEL, attempts.c.lease > last)
    found: datetime | None = connection.scalar(sa.select(sa.func.min(attempts.c.started_at)).where(released))
    return found


def decode_handlers(text: str) -> KnownHandlers:
    """The handlers of a process, by the text of its row."""
    try:
        return msgspec.json.decode(text, type=dict[str, dict[str, dict[str, tuple[str, bool]]] | None])
    except msgspec.DecodeError:
        return {}  # written by a later version
