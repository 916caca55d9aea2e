"""The handlers that each process knows: the column ``handlers`` of ``processes``; see `peerd.domain.known_handlers`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.known_handlers import KnownHandlers, KnownHandlersSnapshot
from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.domain.task_transition import RELEASED_LABEL, UNKNOWN_LABEL
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import attempts, processes, tasks
from peerd.store.tasks.conditions import is_waiting_as

HEARTBEAT_WITHIN: Final = 60.0
"""Seconds since its last beat for which a process counts as alive."""
MAX_EXAMINED: Final = 500
"""Waiting tasks that `count_unknown_handlers` looks at, at the most."""
MAX_RELEASE_DELAY: Final = 60.0
"""Seconds for which a task is given back at the most."""


class UnknownHandler(msgspec.Struct, frozen=True):
    """Tasks of one handler that wait for a process that knows it."""

    queue: str
    name: str
    count: int
    error: str


def encode_handlers(knowledge: KnownHandlers) -> str:
    """What a process knows, as it is stored."""
    return msgspec.json.encode(knowledge).decode()


def read_known_handlers(connection: Connection, task: Task, unknown_after: float) -> KnownHandlersSnapshot:
    """What there is to be seen for a process that cannot run a task.

    Args:
        connection: one that reads.
        task: one that waits for a node is only known to that node's processes.
        unknown_after: seconds for which what a process knew counts after its end.
    """
    moment = connection.execute(sa.select(now())).scalar_one()
    lives = sa.and_(
        processes.c.ended_at.is_(None), processes.c.checked_at > seconds_from_now(-max(unknown_after, HEARTBEAT_WITHIN))
    )
    lived = sa.or_(lives, processes.c.ended_at > seconds_from_now(-unknown_after))
    known = sa.select(processes.c.handlers).distinct().where(processes.c.handlers.is_not(None), lived)
    if task.node_id is not None:
        known = known.where(processes.c.node_id == task.node_id)
    return KnownHandlersSnapshot(
        moment,
        _first_given_back(connection, task.id),
        [_decode_handlers(text) for text in connection.execute(known).scalars()],
    )


def count_unknown_handlers(connection: Connection) -> Sequence[UnknownHandler]:
    """The tasks that were given back because a process did not know them, by handler: of the next that fall due."""
    soon = tasks.c.due_at <= seconds_from_now(MAX_RELEASE_DELAY)
    given_back = (
        sa.select(tasks.c.id, tasks.c.queue, tasks.c.name, tasks.c.lease, tasks.c.error)
        .where(is_waiting_as(Status.SCHEDULED), soon)
        .order_by(tasks.c.due_at)
        .limit(MAX_EXAMINED)
        .subquery()
    )
    of_claim = sa.and_(attempts.c.task_id == given_back.c.id, attempts.c.lease == given_back.c.lease)
    found = (
        sa.select(
            given_back.c.queue,
            given_back.c.name,
            sa.func.count(),
            sa.func.max(given_back.c.error),
        )
        .join_from(given_back, attempts, of_claim)
        .where(attempts.c.outcome == UNKNOWN_LABEL)
        .group_by(given_back.c.queue, given_back.c.name)
        .order_by(given_back.c.queue, given_back.c.name)
    )
    return [UnknownHandler(*row) for row in connection.execute(found)]


def _first_given_back(connection: Connection, task_id: int) -> datetime | None:
    """When a task was given back for the first time since a process that knew it has run it; None: it was not."""
    ran = sa.and_(attempts.c.task_id == task_id, attempts.c.outcome.not_in([UNKNOWN_LABEL, RELEASED_LABEL]))
    last = sa.select(sa.func.coalesce(sa.func.max(attempts.c.lease), -1)).where(ran).scalar_subquery()
    given_back = sa.and_(attempts.c.task_id == task_id, attempts.c.outcome == UNKNOWN_LABEL, attempts.c.lease > last)
    found: datetime | None = connection.execute(
        sa.select(sa.func.min(attempts.c.started_at)).where(given_back)
    ).scalar()
    return found


def _decode_handlers(text: str) -> KnownHandlers:
    try:
        return msgspec.json.decode(text, type=dict[str, dict[str, dict[str, tuple[str, bool]]] | None])
    except msgspec.DecodeError:
        return {}  # a later version says it in another way
