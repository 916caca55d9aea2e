"""Schedules that were created at run time: their definitions, for all nodes.

They enqueue tasks. A schedule that runs a function can be in peerd.toml only: whoever may create schedules must not be
able to have any importable function called. A row that says otherwise is left out.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from peerd.domain.errors import InvalidSchedule, ScheduleNameTaken, ScheduleNotStored
from peerd.domain.schedule import CLUSTER, WORKER, RunStatus, Schedule
from peerd.store.connection.mysql import wait_for_sync
from peerd.store.schedule_runs import NodeIdentity
from peerd.store.schedules import CLUSTER_ROW, declare_schedule, require_schedule
from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import nodes, schedule_runs, schedules, stored_schedules

MAX_STORED: Final = 1_000
"""Schedules that can be created at run time: each node has them all in memory."""
TYPES: Final = (CLUSTER, WORKER)
"""The types that a schedule created at run time may have: a class of its own would be imported."""


class StoredSchedulesState(NamedTuple):
    """What changes when a schedule is created or deleted at run time: their number, and when the newest was created."""

    stored: int
    latest: datetime | None


class StoredSchedules(NamedTuple):
    """The stored schedules; by name, when each was created, and the error of a row that holds none."""

    schedules: list[Schedule]
    created: dict[str, datetime]
    errors: dict[str, str]


def stored_schedules_state() -> tuple[sa.ScalarSelect[Any], sa.ScalarSelect[Any]]:
    """The columns of `StoredSchedulesState`, for a statement that is sent anyway."""
    count = sa.select(sa.func.count()).select_from(stored_schedules).scalar_subquery()
    return count, sa.select(sa.func.max(stored_schedules.c.created_at)).scalar_subquery()


def check_storable(schedule: Schedule) -> Schedule:
    """Check that a schedule may be created at run time.

    Raises:
        InvalidSchedule: it runs a function, or needs a class.

    >>> check_storable(Schedule(name="tidy", run="os:abort", interval=5.0))
    Traceback (most recent call last):
    peerd.domain.errors.InvalidSchedule: run: a function can be in peerd.toml only; give queue, for a task to enqueue
    """
    if schedule.run is not None or schedule.queue is None:
        raise InvalidSchedule("run", "a function can be in peerd.toml only; give queue, for a task to enqueue")
    if schedule.type not in TYPES:
        raise InvalidSchedule("type", f"at run time it can be {' or '.join(map(repr, TYPES))}")
    return schedule


def insert_schedule(connection: Connection, schedule: Schedule, created_by: str | None) -> None:
    """Store a new schedule.

    Raises:
        ScheduleNameTaken: a node has one of this name, or one is stored.
        InvalidSchedule: too many are stored.
    """
    wait_for_sync(connection)
    if connection.execute(sa.select(sa.func.count()).select_from(stored_schedules)).scalar_one() >= MAX_STORED:
        raise InvalidSchedule("name", f"{MAX_STORED} schedules were created at run time; delete some of them")
    if _is_stored(connection, schedule.name):
        raise ScheduleNameTaken(schedule.name, "created at run time")
    if holders := _find_holders(connection, schedule.name):
        raise ScheduleNameTaken(schedule.name, f"in peerd.toml of {', '.join(holders)}")
    row = {"name": schedule.name, "definition": schedule.text, "created_by": created_by}
    try:
        with connection.begin_nested():
            connection.execute(sa.insert(stored_schedules).values(row))
    except IntegrityError:  # another session was faster
        raise ScheduleNameTaken(schedule.name, "created at run time") from None


def declare_stored_schedule(connection: Connection, schedule: Schedule, identity: NodeIdentity, silence: float) -> bool:
    """As `declare_schedule`, unless it was deleted since it was read; whether it was declared."""
    stored = sa.select(stored_schedules.c.name).where(stored_schedules.c.name == schedule.name)
    if connection.execute(stored.with_for_update()).first() is None:
        return False
    declare_schedule(connection, schedule, identity, silence)
    return True


def delete_schedule(connection: Connection, name: str) -> None:
    """Delete a stored schedule: it ticks no more, and its runs that wait are canceled.

    Raises:
        ScheduleNotFound: there is none of this name.
        ScheduleNotStored: a node has it from its peerd.toml.
    """
    if not connection.execute(sa.delete(stored_schedules).where(stored_schedules.c.name == name)).rowcount:
        require_schedule(connection, name)
        raise ScheduleNotStored(name)
    connection.execute(sa.delete(schedules).where(schedules.c.name == name))
    waiting = schedule_runs.c.schedule == name, schedule_runs.c.status == str(RunStatus.WAITING)
    ended = {"status": str(RunStatus.CANCELED), "error": "its schedule was deleted", "finished_at": now()}
    connection.execute(sa.update(schedule_runs).where(*waiting).values(**ended))


def read_stored_schedules(connection: Connection) -> StoredSchedules:
    """All stored schedules."""
    wait_for_sync(connection)
    found = StoredSchedules([], {}, {})
    columns = stored_schedules.c.name, stored_schedules.c.definition, stored_schedules.c.created_at
    for name, definition, created_at in connection.execute(sa.select(*columns).order_by(columns[0]).limit(MAX_STORED)):
        found.created[name] = created_at
        try:
            found.schedules.append(check_storable(_decode(name, definition)))
        except ValueError as error:
            found.errors[name] = str(error)
    return found


def list_stored_names(connection: Connection) -> set[str]:
    """The names of all stored schedules."""
    return set(connection.execute(sa.select(stored_schedules.c.name)).scalars())


def _decode(name: str, definition: str) -> Schedule:
    try:
        schedule = msgspec.json.decode(definition, type=Schedule)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"this is no schedule: {error}") from None
    return msgspec.structs.replace(schedule, name=name)


def _is_stored(connection: Connection, name: str) -> bool:
    found = sa.select(stored_schedules.c.name).where(stored_schedules.c.name == name)
    return connection.execute(found).first() is not None


def _find_holders(connection: Connection, name: str) -> list[str]:
    """The nodes that have a schedule of this name."""
    found = (
        sa.select(nodes.c.name)
        .join(schedules, schedules.c.node_id == nodes.c.id)
        .where(schedules.c.name == name, schedules.c.node_id != CLUSTER_ROW)
        .where(schedules.c.incarnation == nodes.c.incarnation)
        .order_by(nodes.c.name)
    )
    return list(connection.execute(found).scalars())
