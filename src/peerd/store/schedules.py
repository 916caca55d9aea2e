"""Schedules in the table: what each is, who has it, when it ticks next; and who may fire a tick.

A schedule has a row for the cluster (node 0) and one for each node that has it. One of them is its clock: the cluster's
row for a schedule of the type ``cluster``, a node's own for all others. To fire a tick is to move its clock from the
tick on to the following one. That is a compare-and-set, judged by the database's time, so of all who try one does it,
whatever their own clocks say.

**Whose definition stands.** A tick of the cluster belongs to the row: it is computed and run by the definition there.
A node writes its own definition when it is not the one that this node had before; so the newest change wins, and a node
that merely starts again with an older one overwrites nothing. A node that means something else fires no tick of it.
When no living node means what the row says any more, another one writes its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import ScheduleNotFound
from peerd.domain.outcome import truncate
from peerd.domain.schedule import CLUSTER, FireTick, MissTick, RunStatus, Schedule, initial_run_status
from peerd.store.connection.galera import wait_for_sync
from peerd.store.outcomes.recording import database_now
from peerd.store.schedule_runs import NodeIdentity, ScheduleRun, count_waiting_runs, find_runs, insert_run, is_run_open
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import nodes, schedule_runs, schedules
from peerd.store.schema.types import Instant
from peerd.store.tasks.rows import insert_if_absent

CLUSTER_ROW: Final = 0
"""Where a node's id would stand; ids of nodes begin at 1."""


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
        """What the row says; None where this version cannot read it."""
        try:
            return msgspec.json.decode(self.definition, type=Schedule)
        except (ValueError, TypeError):
            return None


class ScheduleSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent sees at one look."""

    now: datetime
    draining: bool
    rows: dict[tuple[str, int], ScheduleRow]
    """The cluster's and the node's own."""
    waiting: list[ScheduleRun]
    """Runs that this node may take, the oldest first."""
    running: list[ScheduleRun]
    """Runs of this life of the node."""


SCHEDULE_COLUMNS: Final = tuple(schedules.c[field] for field in ScheduleRow.__struct_fields__)


def clock_node_id(schedule: Schedule, identity: NodeIdentity) -> int:
    """Whose row is the schedule's clock."""
    return CLUSTER_ROW if schedule.type == CLUSTER else identity.node_id


def declare_schedule(connection: Connection, schedule: Schedule, identity: NodeIdentity, silence: float) -> bool:
    """Say that this life of a node has a schedule. Saying it again changes nothing.

    Args:
        connection: in a transaction of its own.
        schedule: its definition, as this node has it.
        identity: the node, and its life.
        silence: seconds without a beat after which a node counts as gone.

    Returns:
        whether it is run at once, because it is ``immediate`` and this life (of the cluster, or of the node) has begun.
    """
    wait_for_sync(connection)  # with the nodes that have begun elsewhere: of all, one is the first
    cluster, own = _locked_rows(connection, schedule, identity)
    changed = own.fingerprint != schedule.fingerprint
    moment = database_now(connection)
    if changed or cluster.anchor_at is None:
        cluster = _define(connection, cluster, schedule, moment, ticks=schedule.type == CLUSTER)
    own = _define(connection, own, schedule, moment, ticks=schedule.type != CLUSTER)
    _write(connection, own, incarnation=identity.incarnation, error=None)
    begins = (
        schedule.immediate and schedule.enabled and not cluster.disabled and own.incarnation != identity.incarnation
    )
    if begins and schedule.type == CLUSTER:
        begins = _is_the_first_node(connection, identity, silence)
    if begins:
        node_id = None if schedule.type == CLUSTER else identity.node_id
        insert_run(connection, schedule.name, moment, "start", RunStatus.WAITING, node_id=node_id)
    return begins


def withdraw_schedule(connection: Connection, name: str, identity: NodeIdentity) -> None:
    """Say that a node has a schedule no more."""
    connection.execute(sa.delete(schedules).where(schedules.c.name == name, schedules.c.node_id == identity.node_id))


def record_schedule_error(connection: Connection, name: str, identity: NodeIdentity, error: str) -> None:
    """Record why a node cannot keep a schedule that it has."""
    own = sa.update(schedules).where(schedules.c.name == name, schedules.c.node_id == identity.node_id)
    connection.execute(own.values(error=truncate(error, 8192), next_at=None, updated_at=now()))


def take_over_definition(connection: Connection, schedule: Schedule, identity: NodeIdentity, silence: float) -> bool:
    """Write one's own definition of a schedule of the cluster, where no living node means what stands there.

    Returns:
        whether it was written.
    """
    cluster, _ = _locked_rows(connection, schedule, identity)
    others = sa.select(schedules.c.node_id).join(nodes, nodes.c.id == schedules.c.node_id)
    theirs = others.where(
        schedules.c.name == schedule.name,
        schedules.c.fingerprint == cluster.fingerprint,
        _is_declaring_node_alive(silence),
    )
    if cluster.fingerprint == schedule.fingerprint or connection.execute(theirs).first() is not None:
        return False
    _define(connection, cluster, schedule, database_now(connection), ticks=True)
    return True


def read_snapshot(connection: Connection, names: Iterable[str], identity: NodeIdentity) -> ScheduleSnapshot:
    """What there is to know, and to do, for a node that has these schedules."""
    wanted = sorted(names)
    rows = connection.execute(
        sa.select(*SCHEDULE_COLUMNS).where(
            schedules.c.name.in_(wanted), schedules.c.node_id.in_([CLUSTER_ROW, identity.node_id])
        )
    ).mappings()
    of_nobody = sa.or_(schedule_runs.c.node_id.is_(None), schedule_runs.c.node_id == identity.node_id)
    waiting = sa.and_(
        schedule_runs.c.status == RunStatus.WAITING.value, schedule_runs.c.schedule.in_(wanted), of_nobody
    )
    mine = sa.and_(schedule_runs.c.node_id == identity.node_id, schedule_runs.c.incarnation == identity.incarnation)
    running = sa.and_(schedule_runs.c.status == RunStatus.RUNNING.value, mine)
    draining = connection.execute(sa.select(nodes.c.draining).where(nodes.c.id == identity.node_id)).scalar()
    return ScheduleSnapshot(
        now=database_now(connection),
        draining=bool(draining),
        rows={(row["name"], row["node_id"]): ScheduleRow(**row) for row in rows},
        waiting=find_runs(connection, waiting),
        running=find_runs(connection, running),
    )


def fire_tick(
    connection: Connection, seen: ScheduleRow, schedule: Schedule, decided: FireTick | MissTick
) -> ScheduleRun | None:
    """Fire a tick, or record that it was missed, and let the clock go on to the following one.

    Args:
        connection: in a transaction of its own.
        seen: the clock's row, as it was when this was decided.
        schedule: whose it is.
        decided: what shall be done.

    Returns:
        its run; None when somebody else has done it, or the database says that it is not due.
    """
    if not _advance(connection, seen, decided.tick, decided.following, schedule):
        return None
    node_id = None if seen.node_id == CLUSTER_ROW else seen.node_id
    if isinstance(decided, MissTick):
        late = f"nobody saw to it in time: it was {decided.late:.1f} s late"
        return insert_run(
            connection, schedule.name, decided.tick, "clock", RunStatus.MISSED, node_id=node_id, error=late
        )
    return _insert_tick(connection, schedule, decided.tick, "clock", node_id)


def fire_custom_tick(
    connection: Connection, schedule: Schedule, identity: NodeIdentity, origin: str, args: str | None
) -> ScheduleRun:
    """Fire a tick of a class of the user, now and on this node."""
    return _insert_tick(connection, schedule, database_now(connection), origin, identity.node_id, args)


def _insert_tick(
    connection: Connection,
    schedule: Schedule,
    moment: datetime,
    origin: str,
    node_id: int | None,
    args: str | None = None,
) -> ScheduleRun:
    busy = is_run_open(connection, schedule.name, node_id)
    waiting = count_waiting_runs(connection, schedule.name, node_id)
    status = initial_run_status(schedule.overlap, busy=busy, waiting=waiting)
    error = None
    if status is RunStatus.SKIPPED:
        error = "an earlier run was going on" if busy else f"{waiting} earlier ticks were waiting"
    at_first = RunStatus.SKIPPED if status is RunStatus.SKIPPED else RunStatus.WAITING
    return insert_run(connection, schedule.name, moment, origin, at_first, node_id=node_id, args=args, error=error)


def skip_tick(connection: Connection, seen: ScheduleRow, schedule: Schedule, moment: datetime) -> bool:
    """Let the clock of a schedule that is disabled go on past what has come, without a run."""
    assert seen.next_at is not None
    assert seen.anchor_at is not None
    assert schedule.trigger is not None
    return _advance(connection, seen, seen.next_at, schedule.trigger.after(moment, seen.anchor_at), schedule)


def set_schedule_disabled(connection: Connection, name: str, *, disabled: bool) -> None:
    """Let a schedule tick nowhere in the cluster, or let it tick again. It may be run by hand all the same.

    Raises:
        ScheduleNotFound: no node has a schedule of this name.
    """
    require_schedule(connection, name)
    row = sa.update(schedules).where(schedules.c.name == name, schedules.c.node_id == CLUSTER_ROW)
    connection.execute(row.values(disabled=disabled, updated_at=now()))


def require_schedule(connection: Connection, name: str) -> None:
    """See that there is a schedule of this name.

    Raises:
        ScheduleNotFound: there is none.
    """
    known = sa.select(schedules.c.name).where(schedules.c.node_id == CLUSTER_ROW).order_by(schedules.c.name)
    names = connection.execute(known).scalars().all()
    if name not in names:
        raise ScheduleNotFound(name, list(names))


def list_schedule_rows(connection: Connection, name: str | None = None) -> list[ScheduleRow]:
    """The rows of a schedule, or of all of them, the cluster's first."""
    statement = sa.select(*SCHEDULE_COLUMNS).order_by(schedules.c.name, schedules.c.node_id)
    if name is not None:
        statement = statement.where(schedules.c.name == name)
    return [ScheduleRow(**row) for row in connection.execute(statement).mappings()]


def purge_schedules(connection: Connection, age: float) -> int:
    """Delete the rows of nodes that have not had a schedule for ``age`` seconds, and those of schedules of no node."""
    gone = 0
    for clock in list_schedule_rows(connection):
        its = sa.and_(schedules.c.name == clock.name, schedules.c.node_id == clock.node_id)
        old = schedules.c.updated_at <= seconds_from_now(-age)
        if not _is_used(connection, clock):
            gone += connection.execute(sa.delete(schedules).where(its, old)).rowcount
    return gone


def _is_used(connection: Connection, clock: ScheduleRow) -> bool:
    """Whether a row is that of a node in the life in which it has the schedule; or the cluster's, and a node has it."""
    if clock.node_id == CLUSTER_ROW:
        theirs = sa.select(schedules.c.node_id).where(
            schedules.c.name == clock.name, schedules.c.node_id != CLUSTER_ROW
        )
    else:
        theirs = sa.select(nodes.c.id).where(nodes.c.id == clock.node_id, nodes.c.incarnation == clock.incarnation)
    return connection.execute(theirs).first() is not None


def _locked_rows(connection: Connection, schedule: Schedule, identity: NodeIdentity) -> tuple[ScheduleRow, ScheduleRow]:
    """The cluster's row and the node's, locked in this order, and made where they are not there."""
    found = []
    for node_id in (CLUSTER_ROW, identity.node_id):
        row = {"name": schedule.name, "node_id": node_id, "type": schedule.type, "definition": "{}", "fingerprint": ""}
        insert_if_absent(connection, schedules, [row], key=("name", "node_id"))
        wanted = sa.select(*SCHEDULE_COLUMNS).where(schedules.c.name == schedule.name, schedules.c.node_id == node_id)
        found.append(ScheduleRow(**connection.execute(wanted.with_for_update()).mappings().one()))
    cluster, own = found
    return cluster, own


def _define(
    connection: Connection, row: ScheduleRow, schedule: Schedule, moment: datetime, *, ticks: bool
) -> ScheduleRow:
    """Write a definition into a row. Its clock goes on, unless it ticks otherwise now: then it begins anew."""
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
    _write(connection, row, **values)
    return msgspec.structs.replace(row, **values)


def _timing(schedule: Schedule) -> tuple[object, ...]:
    return schedule.type == CLUSTER, schedule.interval, schedule.cron, schedule.timezone


def _write(connection: Connection, row: ScheduleRow, **values: Any) -> None:
    its = sa.and_(schedules.c.name == row.name, schedules.c.node_id == row.node_id)
    connection.execute(sa.update(schedules).where(its).values(updated_at=now(), **values))


def _advance(
    connection: Connection, seen: ScheduleRow, tick_at: datetime, following: datetime | None, schedule: Schedule
) -> bool:
    """Move a clock on, if it stands where it was seen, means what we mean, and the database says that it is time."""
    due = sa.cast(sa.literal(tick_at, Instant()), Instant())
    as_seen = sa.and_(
        schedules.c.name == seen.name,
        schedules.c.node_id == seen.node_id,
        schedules.c.turn == seen.turn,
        schedules.c.fingerprint == schedule.fingerprint,
        due <= now(),
    )
    values = {"turn": seen.turn + 1, "next_at": following, "last_at": tick_at, "updated_at": now()}
    return connection.execute(sa.update(schedules).where(as_seen).values(**values)).rowcount == 1


def _is_the_first_node(connection: Connection, identity: NodeIdentity, silence: float) -> bool:
    """Whether no other living node has begun before this one: then the cluster begins with it."""
    began = sa.select(nodes.c.started_at).where(nodes.c.id == identity.node_id).scalar_subquery()
    earlier = sa.or_(nodes.c.started_at < began, sa.and_(nodes.c.started_at == began, nodes.c.id < identity.node_id))
    others = sa.select(nodes.c.id).where(
        nodes.c.id != identity.node_id,
        nodes.c.incarnation.is_not(None),
        nodes.c.checked_at > seconds_from_now(-silence),
    )
    return connection.execute(others.where(earlier)).first() is None


def _is_declaring_node_alive(silence: float) -> sa.ColumnElement[bool]:
    """That the node of a row lives, in the life in which it has said that it has the schedule."""
    return sa.and_(nodes.c.incarnation == schedules.c.incarnation, nodes.c.checked_at > seconds_from_now(-silence))
