"""Schedules in the table: definitions, the nodes that have them, and the next ticks.

A schedule has a row for the cluster (node 0) and one for each node that has it. One of them is its clock: the cluster's
row for the type ``cluster``, the node's own row for all others. To fire a tick is to advance the clock from the tick to
the next one, by a compare-and-set under the database's time, so one of all nodes does it; their clocks do not matter.

**Which definition is valid.** A tick of the cluster is computed and run by the definition in the cluster's row. A node
writes its own there when it differs from the one that this node had before: the newest change wins, and a node that
restarts with an older definition overwrites nothing. A node with another definition does not fire. When no living node
has the definition of the row, another node writes its own (`take_over_definition`); without that, a schedule would stop
for ever after the nodes that had changed it are gone, or after a change was rolled back.

**Schedules that were created at run time** enqueue tasks. A schedule that runs a function can be in peerd.toml only:
whoever may create schedules must not be able to have any importable function called. A row that says otherwise is left
out.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from peerd.domain.errors import InvalidSchedule, ScheduleNameTaken, ScheduleNotFound, ScheduleNotStored
from peerd.domain.outcome import truncate
from peerd.domain.schedule import CLUSTER, WORKER, FireTick, MissTick, RunStatus, Schedule, initial_run_status
from peerd.store import schedule_runs as runs
from peerd.store.connection.mysql import wait_for_sync
from peerd.store.outcomes import database_now
from peerd.store.records import columns_of, read_all
from peerd.store.schedule_runs import RUN, NodeIdentity, ScheduleRun
from peerd.store.schema.tables import nodes, schedule_runs, schedules, stored_schedules
from peerd.store.schema.types import Instant, moment, now, seconds_from_now
from peerd.store.statements import insert_if_absent

CLUSTER_ROW: Final = 0
"""The ``node_id`` of the cluster's row; ids of nodes begin at 1."""
MAX_STORED: Final = 1_000
"""Schedules that can be created at run time: each node has them all in memory."""
TYPES: Final = (CLUSTER, WORKER)
"""The types that a schedule created at run time may have: a class of its own would be imported."""


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table ``schedules``."""

    name: str
    node_id: int
    type: str
    definition: str
    fingerprint: str
    incarnation: str | None
    disabled: bool
    turn: int
    anchor_at: datetime | None
    next_at: datetime | None
    last_at: datetime | None
    error: str | None
    updated_at: datetime

    @property
    def schedule(self) -> Schedule | None:
        """The definition; None where this version cannot read it."""
        try:
            return msgspec.json.decode(self.definition, type=Schedule)
        except (ValueError, TypeError):
            return None


class ScheduleSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules and runs of a node, as read at one poll.

    Attributes:
        rows: by name and node id: the cluster's and the node's own.
        waiting: runs that this node may take, the oldest first.
        running: runs of this incarnation of the node.
    """

    now: datetime
    draining: bool
    rows: dict[tuple[str, int], ScheduleRow]
    waiting: list[ScheduleRun]
    running: list[ScheduleRun]


_ROWS: Final = sa.select(*columns_of(ScheduleRow, schedules))


def clock_node_id(schedule: Schedule, identity: NodeIdentity) -> int:
    """The node id of the row that is the schedule's clock."""
    return CLUSTER_ROW if schedule.type == CLUSTER else identity.node_id


def declare_schedule(connection: Connection, schedule: Schedule, identity: NodeIdentity, silence: float) -> bool:
    """Write that an incarnation of a node has a schedule, with the node's definition; repeating it changes nothing.

    Without a heartbeat for ``silence`` seconds another node counts as gone.

    Returns:
        whether it runs at once: it is ``immediate``, and the cluster or the node has just started.
    """
    wait_for_sync(connection)  # with the registrations of other nodes: one node is the first
    cluster, own = _locked_rows(connection, schedule, identity)
    changed = own.fingerprint != schedule.fingerprint
    moment = database_now(connection)
    if changed or cluster.anchor_at is None:
        cluster = _define(connection, cluster, schedule, moment, ticks=schedule.type == CLUSTER)
    own = _define(connection, own, schedule, moment, ticks=schedule.type != CLUSTER)
    _update(connection, own, incarnation=identity.incarnation, error=None)
    if not schedule.immediate or not schedule.enabled or cluster.disabled or own.incarnation == identity.incarnation:
        return False
    if schedule.type == CLUSTER and not _is_first_node(connection, identity, silence):
        return False
    node_id = None if schedule.type == CLUSTER else identity.node_id
    runs.insert_run(connection, schedule.name, moment, "start", RunStatus.WAITING, node_id=node_id)
    return True


def withdraw_schedule(connection: Connection, name: str, identity: NodeIdentity) -> None:
    """Delete a node's row of a schedule that it no longer has."""
    connection.execute(sa.delete(schedules).where(schedules.c.name == name, schedules.c.node_id == identity.node_id))


def record_schedule_error(connection: Connection, name: str, identity: NodeIdentity, error: str) -> None:
    """Record why a schedule does not tick on a node."""
    own = sa.update(schedules).where(schedules.c.name == name, schedules.c.node_id == identity.node_id)
    connection.execute(own.values(error=truncate(error, 8192), next_at=None, updated_at=now()))


def take_over_definition(connection: Connection, schedule: Schedule, identity: NodeIdentity, silence: float) -> bool:
    """Write a node's definition of a schedule of the cluster if no living node has the present one; whether it did."""
    cluster, _ = _locked_rows(connection, schedule, identity)
    holders = (
        sa.select(schedules.c.node_id)
        .join(nodes, nodes.c.id == schedules.c.node_id)
        .where(
            schedules.c.name == schedule.name,
            schedules.c.fingerprint == cluster.fingerprint,
            nodes.c.incarnation == schedules.c.incarnation,
            nodes.c.checked_at > seconds_from_now(-silence),
        )
    )
    if cluster.fingerprint == schedule.fingerprint or connection.execute(holders).first() is not None:
        return False
    _define(connection, cluster, schedule, database_now(connection), ticks=True)
    return True


def read_snapshot(connection: Connection, names: Iterable[str], identity: NodeIdentity) -> ScheduleSnapshot:
    """The rows and runs of the schedules that a node has."""
    wanted = sorted(names)
    own_rows = schedules.c.name.in_(wanted), schedules.c.node_id.in_([CLUSTER_ROW, identity.node_id])
    rows = read_all(connection, ScheduleRow, _ROWS.where(*own_rows))
    for_this_node = sa.or_(RUN.node_id.is_(None), RUN.node_id == identity.node_id)
    waiting = sa.and_(RUN.status == RunStatus.WAITING.value, RUN.schedule.in_(wanted), for_this_node)
    draining = connection.execute(sa.select(nodes.c.draining).where(nodes.c.id == identity.node_id)).scalar()
    return ScheduleSnapshot(
        now=database_now(connection),
        draining=bool(draining),
        rows={(row.name, row.node_id): row for row in rows},
        waiting=runs.find_runs(connection, waiting),
        running=runs.find_runs(connection, runs.is_running_on(identity)),
    )


def fire_tick(
    connection: Connection, row: ScheduleRow, schedule: Schedule, decision: FireTick | MissTick
) -> ScheduleRun | None:
    """Fire a tick, or record that it was missed, and advance the clock, on whose ``row`` the decision is based.

    Returns:
        the run; None when another node was first, or the tick is not due by the database's clock.
    """
    if not _advance(connection, row, decision.tick, decision.following, schedule):
        return None
    node_id = None if row.node_id == CLUSTER_ROW else row.node_id
    if isinstance(decision, FireTick):
        return _insert_tick(connection, schedule, decision.tick, "clock", node_id)
    missed = {"node_id": node_id, "error": f"no agent fired it in time: it was {decision.late:.1f} s late"}
    return runs.insert_run(connection, schedule.name, decision.tick, "clock", RunStatus.MISSED, **missed)


def fire_custom_tick(
    connection: Connection, schedule: Schedule, identity: NodeIdentity, origin: str, args: str | None
) -> ScheduleRun | None:
    """Insert a run for a custom trigger, now and on this node; None while the schedule is disabled."""
    cluster = sa.select(schedules.c.disabled).where(schedules.c.name == schedule.name)
    if connection.execute(cluster.where(schedules.c.node_id == CLUSTER_ROW)).scalar():
        return None
    return _insert_tick(connection, schedule, database_now(connection), origin, identity.node_id, args)


def _insert_tick(
    connection: Connection,
    schedule: Schedule,
    moment: datetime,
    origin: str,
    node_id: int | None,
    args: str | None = None,
) -> ScheduleRun:
    busy = runs.is_run_open(connection, schedule.name, node_id)
    waiting = runs.count_waiting_runs(connection, schedule.name, node_id)
    status = initial_run_status(schedule.overlap, busy=busy, waiting=waiting)
    values: dict[str, Any] = {"node_id": node_id, "args": args}
    if status is RunStatus.SKIPPED:
        values["error"] = "an earlier run was going on" if busy else f"{waiting} earlier ticks were waiting"
    else:
        status = RunStatus.WAITING  # an agent takes it
    return runs.insert_run(connection, schedule.name, moment, origin, status, **values)


def skip_tick(connection: Connection, row: ScheduleRow, schedule: Schedule, moment: datetime) -> bool:
    """Advance the clock of a disabled schedule past the ticks that have come, without a run."""
    assert row.next_at is not None
    assert row.anchor_at is not None
    assert schedule.trigger is not None
    return _advance(connection, row, row.next_at, schedule.trigger.after(moment, row.anchor_at), schedule)


def set_schedule_disabled(connection: Connection, name: str, *, disabled: bool) -> None:
    """Stop or restart the ticks of a schedule in the whole cluster; manual runs stay possible.

    Raises:
        ScheduleNotFound: no node has a schedule of this name.
    """
    require_schedule(connection, name)
    row = sa.update(schedules).where(schedules.c.name == name, schedules.c.node_id == CLUSTER_ROW)
    connection.execute(row.values(disabled=disabled, updated_at=now()))


def require_schedule(connection: Connection, name: str) -> None:
    """Check that there is a schedule of this name.

    Raises:
        ScheduleNotFound: there is none.
    """
    known = sa.select(schedules.c.name).where(schedules.c.node_id == CLUSTER_ROW).order_by(schedules.c.name)
    names = connection.execute(known).scalars().all()
    if name not in names:
        raise ScheduleNotFound(name, list(names))


def list_schedule_rows(connection: Connection, name: str | None = None) -> list[ScheduleRow]:
    """The rows of a schedule, or of all of them, the cluster's first."""
    wanted = sa.true() if name is None else schedules.c.name == name
    return read_all(connection, ScheduleRow, _ROWS.where(wanted).order_by(schedules.c.name, schedules.c.node_id))


def purge_schedules(connection: Connection, age: float) -> int:
    """Delete rows that have been unused for ``age`` seconds: of former incarnations, and of schedules of no node."""
    deleted = 0
    old = schedules.c.updated_at <= seconds_from_now(-age)
    for row in list_schedule_rows(connection):
        if row.node_id == CLUSTER_ROW:
            of_nodes = schedules.c.name == row.name, schedules.c.node_id != CLUSTER_ROW
            users = sa.select(schedules.c.node_id).where(*of_nodes)
        else:
            users = sa.select(nodes.c.id).where(nodes.c.id == row.node_id, nodes.c.incarnation == row.incarnation)
        if connection.execute(users).first() is None:
            deleted += connection.execute(sa.delete(schedules).where(_is_row(row), old)).rowcount
    return deleted


def _locked_rows(connection: Connection, schedule: Schedule, identity: NodeIdentity) -> tuple[ScheduleRow, ScheduleRow]:
    """The cluster's row and the node's, locked in this order, and inserted where they are missing."""
    rows: list[ScheduleRow] = []
    for node_id in (CLUSTER_ROW, identity.node_id):
        new = {"name": schedule.name, "node_id": node_id, "type": schedule.type, "definition": "{}", "fingerprint": ""}
        insert_if_absent(connection, schedules, [new], key=("name", "node_id"))
        is_it = schedules.c.name == schedule.name, schedules.c.node_id == node_id
        rows += read_all(connection, ScheduleRow, _ROWS.where(*is_it).with_for_update())
    return rows[0], rows[1]


def _define(
    connection: Connection, row: ScheduleRow, schedule: Schedule, moment: datetime, *, ticks: bool
) -> ScheduleRow:
    """Write a definition into a row. If its timing has changed, its clock starts again."""
    if row.fingerprint == schedule.fingerprint:
        return row
    values: dict[str, Any] = {
        "type": schedule.type,
        "definition": schedule.text,
        "fingerprint": schedule.fingerprint,
        "turn": row.turn + 1,
    }
    earlier = row.schedule
    if not ticks:
        values |= {"anchor_at": moment, "next_at": None}
    elif earlier is None or row.next_at is None or _timing(earlier) != _timing(schedule):
        next_at = None if schedule.trigger is None else schedule.trigger.after(moment, moment)
        values |= {"anchor_at": moment, "next_at": next_at}
    _update(connection, row, **values)
    return msgspec.structs.replace(row, **values)


def _timing(schedule: Schedule) -> tuple[object, ...]:
    return schedule.type == CLUSTER, schedule.interval, schedule.cron, schedule.timezone


def _is_row(row: ScheduleRow) -> sa.ColumnElement[bool]:
    return sa.and_(schedules.c.name == row.name, schedules.c.node_id == row.node_id)


def _update(connection: Connection, row: ScheduleRow, *conditions: sa.ColumnElement[bool], **values: Any) -> bool:
    statement = sa.update(schedules).where(_is_row(row), *conditions)
    return connection.execute(statement.values(updated_at=now(), **values)).rowcount == 1


def _advance(
    connection: Connection, row: ScheduleRow, tick_at: datetime, following: datetime | None, schedule: Schedule
) -> bool:
    """Advance a clock if its row and definition are unchanged, and the tick is due by the database's clock."""
    due = moment(sa.literal(tick_at, Instant())) <= now()
    unchanged = schedules.c.turn == row.turn, schedules.c.fingerprint == schedule.fingerprint
    return _update(connection, row, *unchanged, due, turn=row.turn + 1, next_at=following, last_at=tick_at)


def _is_first_node(connection: Connection, identity: NodeIdentity, silence: float) -> bool:
    """Whether no other living node was started before this one."""
    began = sa.select(nodes.c.started_at).where(nodes.c.id == identity.node_id).scalar_subquery()
    earlier = sa.or_(nodes.c.started_at < began, sa.and_(nodes.c.started_at == began, nodes.c.id < identity.node_id))
    others = sa.select(nodes.c.id).where(
        nodes.c.id != identity.node_id,
        nodes.c.incarnation.is_not(None),
        nodes.c.checked_at > seconds_from_now(-silence),
    )
    return connection.execute(others.where(earlier)).first() is None


# ---------------------------------------------------------------- stored schedules


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
    """Declare a stored schedule, unless it was deleted since it was read; return whether it was declared."""
    if not _is_stored(connection, schedule.name, lock=True):
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


def _is_stored(connection: Connection, name: str, *, lock: bool = False) -> bool:
    found = sa.select(stored_schedules.c.name).where(stored_schedules.c.name == name)
    return connection.execute(found.with_for_update() if lock else found).first() is not None


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
