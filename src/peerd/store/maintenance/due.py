"""What there is to do for the chores, and when: one cheap read, so that an idle table is asked once and not ten times.

Each moment is the head of an index that the chore itself walks. The rows that the chores then write are found by their
own statements, with their own conditions: an agenda that is too early costs a statement, and none can be too late by
more than the pause between two of them.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import Status
from peerd.domain.schedule import RunStatus
from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import limit_starts, nodes, schedule_runs, tasks, unique_keys
from peerd.store.tasks.conditions import is_closing_as, is_pending_too_early, is_waiting_as, is_working

ENDED_STATUSES = (Status.DONE, Status.CANCELED, Status.DEAD)


class DueMaintenance(msgspec.Struct, frozen=True, kw_only=True):
    """What was found; a moment is None where there is no such row.

    Attributes:
        now: the database's clock.
        nodes: that are active.
        oldest_beat: of a node that is active.
        oldest_touch: of a task that runs.
        scheduled: when the next scheduled task falls due.
        failure: when the next failure does.
        ahead: when one that is pending already falls due.
        pending: when the next pending task expires.
        done: when the oldest done task ended.
        canceled: likewise.
        dead: likewise.
        key: when the next unique key's period is over.
        start: when the next start of a limited task is counted no more.
        runs: whether scheduled runs go on.
    """

    now: datetime
    nodes: int
    oldest_beat: datetime | None
    oldest_touch: datetime | None
    scheduled: datetime | None
    failure: datetime | None
    ahead: datetime | None
    pending: datetime | None
    done: datetime | None
    canceled: datetime | None
    dead: datetime | None
    key: datetime | None
    start: datetime | None
    runs: bool


def read_due_maintenance(connection: Connection) -> DueMaintenance:
    """Look what there is to do; one statement."""
    row = connection.execute(_statement()).mappings().one()
    return DueMaintenance(**{**row, "runs": bool(row["runs"])})


@lru_cache(maxsize=1)
def _statement() -> sa.Select[Any]:
    active = sa.select(nodes.c.id).where(nodes.c.active)
    touched = sa.func.coalesce(tasks.c.checked_at, tasks.c.updated_at)
    running = sa.select(sa.func.min(touched)).where(is_working())
    parts: dict[str, Any] = {
        "nodes": sa.select(sa.func.count()).select_from(active.subquery()).scalar_subquery(),
        "oldest_beat": sa.select(sa.func.min(nodes.c.checked_at)).where(nodes.c.active).scalar_subquery(),
        "oldest_touch": running.scalar_subquery(),
        "scheduled": _first(tasks.c.due_at, is_waiting_as(Status.SCHEDULED)),
        "failure": _first(tasks.c.due_at, is_waiting_as(Status.FAILURE)),
        "ahead": _first(tasks.c.due_at, is_pending_too_early(now())),
        "pending": _closing(Status.PENDING),
        **{str(status): _closing(status) for status in ENDED_STATUSES},
        "key": _first(unique_keys.c.expires_at, unique_keys.c.expires_at.is_not(None)),
        "start": _first(limit_starts.c.counts_until, limit_starts.c.counts_until.is_not(None)),
        "runs": sa.exists().where(schedule_runs.c.status == RunStatus.RUNNING.value),
    }
    return sa.select(now().label("now"), *(part.label(name) for name, part in parts.items()))


def _closing(status: Status) -> sa.ScalarSelect[Any]:
    return _first(tasks.c.closing_at, is_closing_as(status))


def _first(moment: sa.ColumnElement[Any], *conditions: Any) -> sa.ScalarSelect[Any]:
    return sa.select(moment).where(*conditions).order_by(moment).limit(1).scalar_subquery()
