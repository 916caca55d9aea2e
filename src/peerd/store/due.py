"""The times at which maintenance is due: one cheap read, so that an idle table is read once and not ten times.

Each time is the first entry of an index that the chore itself walks. The chores find their rows by their own
statements, with their own conditions: a time that is too early costs a statement, and none is too late by more than the
pause between two reads.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.bulk import ACTIVE
from peerd.domain.lifecycle import Status
from peerd.domain.schedule import RunStatus
from peerd.store.attempt_series import latest_bucket
from peerd.store.node_requests import has_waiting_requests
from peerd.store.schedules import StoredSchedulesState, stored_schedules_state
from peerd.store.schema.tables import (
    bulk_actions,
    disks,
    limit_starts,
    nodes,
    processes,
    schedule_runs,
    tasks,
    unique_keys,
)
from peerd.store.schema.types import now
from peerd.store.tasks.conditions import (
    PENDING_KINDS,
    by_index,
    is_closing_as,
    is_pending_too_early,
    is_waiting_as,
    is_working,
)
from peerd.store.time_series import MINUTE

CLOSING_STATUSES = (Status.PENDING, Status.DONE, Status.CANCELED, Status.DEAD)

ACTIVE_BULK: list[sa.ColumnElement[Any]] = [sa.literal_column(f"'{state}'") for state in ACTIVE]


class NextDue(msgspec.Struct, frozen=True):
    """The database's clock, the time when the next task falls due, and the id of the first active node.

    For an agent also whether a request waits for it, and what changes with the schedules that are in the database.
    """

    now: datetime
    next_at: datetime | None
    first_node: int | None
    has_requests: bool = False
    schedules_state: StoredSchedulesState | None = None


class DueMaintenance(msgspec.Struct, frozen=True, kw_only=True):
    """The times at which chores are due; None where there is no such row.

    ``nodes`` counts the active ones, ``oldest_heartbeat`` is theirs, ``oldest_touch`` is the running tasks', or the
    oldest heartbeat of a process with reservations.
    ``scheduled``, ``failure`` and ``ahead`` (written as pending too early) are when the next such task falls due,
    ``pending`` when the next one expires, ``done``, ``canceled`` and ``dead`` when the oldest ended, ``key`` and
    ``start`` when the next unique key ends and the next limited start is counted no longer. ``runs``: schedules run.
    ``bulk``: there are bulk actions to carry out.
    ``first_node`` is the first of the active ones, which does what one node does for all. ``has_pending``: tasks are
    pending. ``newest_bucket`` of the time series of attempts. ``has_disks``: files are kept.
    """

    now: datetime
    nodes: int
    oldest_heartbeat: datetime | None
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
    bulk: bool
    first_node: int | None
    has_pending: bool
    newest_bucket: datetime | None
    has_disks: bool = False


def find_next_due(connection: Connection) -> NextDue:
    """Find when the next scheduled task or failure falls due; one statement."""
    clock, first_node, *due = connection.execute(_next_due_statement()).one()
    return NextDue(clock, min((time for time in due if time is not None), default=None), first_node)


def find_agent_work(connection: Connection, incarnation: str) -> NextDue:
    """Find what is due next (`find_next_due`) and what else an agent looks at: one statement, also of an idle node."""
    row = connection.execute(_agent_work_statement(), {"of_incarnation": incarnation}).one()
    clock, first_node, scheduled, failure, has_requests, stored, latest = row
    next_at = min((time for time in (scheduled, failure) if time is not None), default=None)
    return NextDue(clock, next_at, first_node, bool(has_requests), StoredSchedulesState(stored, latest))


def read_due_maintenance(connection: Connection) -> DueMaintenance:
    """Read when each chore is due; one statement."""
    row = dict(connection.execute(_due_maintenance_statement()).mappings().one())
    touches = [time for time in (row["oldest_touch"], row.pop("oldest_reservation")) if time is not None]
    found = {name: bool(row[name]) for name in ("runs", "bulk", "has_pending", "has_disks")}
    return DueMaintenance(**{**row, **found, "oldest_touch": min(touches, default=None)})


@lru_cache(maxsize=1)
def _next_due_statement() -> sa.Select[Any]:
    return sa.select(now(), _first_node(), _waiting(Status.SCHEDULED), _waiting(Status.FAILURE))


@lru_cache(maxsize=1)
def _agent_work_statement() -> sa.Select[Any]:
    return _next_due_statement().add_columns(
        has_waiting_requests(sa.bindparam("of_incarnation")).label("has_requests"), *stored_schedules_state()
    )


@lru_cache(maxsize=1)
def _due_maintenance_statement() -> sa.Select[Any]:
    active = sa.select(nodes.c.id).where(nodes.c.active)
    touched = sa.func.coalesce(tasks.c.checked_at, tasks.c.updated_at)
    is_claim = tasks.c.deadline_at.is_(None)
    parts: dict[str, Any] = {
        "nodes": sa.select(sa.func.count()).select_from(active.subquery()).scalar_subquery(),
        "oldest_heartbeat": sa.select(sa.func.min(nodes.c.checked_at)).where(nodes.c.active).scalar_subquery(),
        "oldest_touch": sa.select(sa.func.min(touched)).where(is_working(), is_claim).scalar_subquery(),
        "oldest_reservation": _oldest_reservation(touched),
        "scheduled": _waiting(Status.SCHEDULED),
        "failure": _waiting(Status.FAILURE),
        "ahead": _first(tasks.c.due_at, is_pending_too_early(now())),
        **{str(status): _first(tasks.c.closing_at, is_closing_as(status)) for status in CLOSING_STATUSES},
        "key": _first(unique_keys.c.expires_at, unique_keys.c.expires_at.is_not(None)),
        "start": _first(limit_starts.c.counts_until, limit_starts.c.counts_until.is_not(None)),
        "runs": sa.exists().where(schedule_runs.c.status == RunStatus.RUNNING.value),
        "bulk": sa.exists().where(bulk_actions.c.state.in_(ACTIVE_BULK)),
        "first_node": _first_node(),
        "has_pending": sa.or_(*(kind.first_queue().scalar_subquery().is_not(None) for kind in PENDING_KINDS)),
        "newest_bucket": latest_bucket(MINUTE),
        "has_disks": sa.exists().where(disks.c.id.is_not(None)),
    }
    return sa.select(now().label("now"), *(part.label(name) for name, part in parts.items()))


def _oldest_reservation(touched: sa.ColumnElement[Any]) -> sa.ScalarSelect[Any]:
    """The oldest heartbeat of a process that holds reservations; its oldest reservation if it has no record."""
    columns = (tasks.c.process_id, sa.func.min(touched).label("touched_at"))
    held = sa.select(*columns).where(is_working(), tasks.c.deadline_at.is_not(None)).group_by(tasks.c.process_id)
    holder = by_index(held, "tasks_claim").subquery("holder")
    shown = sa.func.coalesce(processes.c.checked_at, holder.c.touched_at)
    joined = holder.outerjoin(processes, processes.c.id == holder.c.process_id)
    return sa.select(sa.func.min(shown)).select_from(joined).scalar_subquery()


def _first_node() -> sa.ScalarSelect[Any]:
    return sa.select(sa.func.min(nodes.c.id)).where(nodes.c.active).scalar_subquery()


def _waiting(status: Status) -> sa.ScalarSelect[Any]:
    return _first(tasks.c.due_at, is_waiting_as(status))


def _first(time: sa.ColumnElement[Any], condition: sa.ColumnElement[bool]) -> sa.ScalarSelect[Any]:
    return sa.select(time).where(condition).order_by(time).limit(1).scalar_subquery()
