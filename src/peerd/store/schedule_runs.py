"""Runs of schedules: a row for each tick, each process that runs it, and each wish to run one by hand.

Every run begins as ``waiting``, whoever wants it. An agent takes it (a compare-and-set), gives it to a worker process,
and writes what the process reports. Whoever dies meanwhile, the row is there, and somebody ends it: the agent of the
node when a process dies, the managers of the others when a node does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import PeerdError, RunNotFound
from peerd.domain.lifecycle import FINISHED
from peerd.domain.outcome import truncate
from peerd.domain.schedule import CLUSTER, UNFINISHED_STATUSES, RunStatus, Schedule
from peerd.domain.task import NewTask
from peerd.store.enqueue.enqueue import enqueue
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import nodes, processes, schedule_runs, schedules, tasks
from peerd.store.tasks.rows import BATCH

MAX_ERROR_LENGTH: Final = 8192
"""Characters of an error that are kept."""
UNIQUE_KEY_SECONDS: Final = 86_400.0
"""Seconds for which the unique key of a tick's task holds."""
NAME_CHARS_IN_KEY: Final = 150
"""Characters of a schedule's name in the unique key."""


class NodeIdentity(msgspec.Struct, frozen=True):
    """A node in one of its lives."""

    node_id: int
    incarnation: str


class ScheduleRun(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table ``schedule_runs``."""

    id: int
    schedule: str
    tick_at: datetime
    """The moment that the run is for; of one by hand, when it was asked for."""
    origin: str
    """``clock``, ``start`` (immediate), ``hand``, ``custom`` (a class of the user), ``again`` (its node was lost)."""
    number: int
    """1; more where it is run again because its node was lost."""
    args: str | None
    """JSON of arguments given for this run; None: the schedule's own."""
    status: RunStatus
    node_id: int | None
    incarnation: str | None
    slot: str | None
    pid: int | None
    task_id: int | None
    error: str | None
    traceback: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.status in UNFINISHED_STATUSES


RUN_COLUMNS: Final = tuple(schedule_runs.c[field] for field in ScheduleRun.__struct_fields__)
NODE_LOST_ERROR: Final = "its node went away"


def find_runs(connection: Connection, condition: sa.ColumnElement[bool], *, limit: int = BATCH) -> list[ScheduleRun]:
    """The oldest runs that meet a condition."""
    statement = sa.select(*RUN_COLUMNS).where(condition).order_by(schedule_runs.c.id).limit(limit)
    return [_to_run(row) for row in connection.execute(statement).mappings()]


def insert_run(
    connection: Connection, schedule: str, tick_at: datetime, origin: str, status: RunStatus, **more: Any
) -> ScheduleRun:
    """Write a run, in any status."""
    values = {"schedule": schedule, "tick_at": tick_at, "origin": origin, "status": status.value, **more}
    if status not in UNFINISHED_STATUSES:
        values["finished_at"] = now()
    return get_run(connection, _insert(connection, values))


def request_run(connection: Connection, schedule: str, args: str | None = None) -> ScheduleRun:
    """Ask for a run by hand: the first agent that has the schedule takes it."""
    return get_run(connection, _insert(connection, {"schedule": schedule, "args": args, "tick_at": now()}))


def get_run(connection: Connection, run_id: int) -> ScheduleRun:
    """A run.

    Raises:
        RunNotFound: there is none of this id.
    """
    row = connection.execute(sa.select(*RUN_COLUMNS).where(schedule_runs.c.id == run_id)).mappings().first()
    if row is None:
        raise RunNotFound(run_id)
    return _to_run(row)


def list_sibling_runs(connection: Connection, run_id: int) -> list[ScheduleRun]:
    """A run, and those of the other processes that one request, or one tick on a node, has begun with it.

    Raises:
        RunNotFound: there is none of this id.
    """
    first = get_run(connection, run_id)
    fields = ("schedule", "tick_at", "origin", "number", "node_id")
    same = [schedule_runs.c[field] == getattr(first, field) for field in fields]
    return find_runs(connection, sa.and_(schedule_runs.c.id >= run_id, *same)) if first.node_id is not None else [first]


def list_runs(connection: Connection, schedule: str | None = None, *, limit: int = 100) -> list[ScheduleRun]:
    """The newest runs of a schedule, or of all, the newest first."""
    statement = sa.select(*RUN_COLUMNS).order_by(schedule_runs.c.id.desc()).limit(limit)
    if schedule is not None:
        statement = statement.where(schedule_runs.c.schedule == schedule)
    return [_to_run(row) for row in connection.execute(statement).mappings()]


def is_run_open(connection: Connection, schedule: str, node_id: int | None) -> bool:
    """Whether a run goes on: on a node, or (None) anywhere. One that has enqueued a task goes on until its end."""
    its = [schedule_runs.c.schedule == schedule]
    if node_id is not None:
        its.append(schedule_runs.c.node_id == node_id)
    running = sa.select(schedule_runs.c.id).where(*its, schedule_runs.c.status == RunStatus.RUNNING.value)
    if connection.execute(running.limit(1)).first() is not None:
        return True
    latest = sa.select(schedule_runs.c.task_id).where(*its, schedule_runs.c.status == RunStatus.ENQUEUED.value)
    task_id = connection.execute(latest.order_by(schedule_runs.c.id.desc()).limit(1)).scalar()
    status = connection.execute(sa.select(tasks.c.status).where(tasks.c.id == task_id)).scalar() if task_id else None
    return status is not None and status not in FINISHED


def count_waiting_runs(connection: Connection, schedule: str, node_id: int | None) -> int:
    """How many ticks wait to be run: on a node, or (None) on any."""
    its = schedule_runs.c.node_id.is_(None) if node_id is None else schedule_runs.c.node_id == node_id
    waiting = sa.and_(
        schedule_runs.c.schedule == schedule,
        schedule_runs.c.status == RunStatus.WAITING.value,
        schedule_runs.c.origin != "hand",
        its,
    )
    return connection.execute(sa.select(sa.func.count()).where(waiting)).scalar_one()


def claim_run(
    connection: Connection,
    run: ScheduleRun,
    schedule: Schedule,
    identity: NodeIdentity,
    processes: Sequence[tuple[str, int]],
) -> list[ScheduleRun]:
    """Take a waiting run for worker processes of this node.

    Args:
        connection: in a transaction of its own.
        run: as it was seen.
        schedule: whose it is.
        identity: the node.
        processes: slot and pid of each that shall run it; for all but the first, a row is added.

    Returns:
        a run for each process; none when another node has taken it, or an earlier run goes on that it must not overlap.
    """
    if not _overlap_allows(connection, run, schedule, identity):
        return []
    (slot, pid), *others = processes
    started = {"status": RunStatus.RUNNING.value, "node_id": identity.node_id, "incarnation": identity.incarnation}
    if not _change(connection, run.id, RunStatus.WAITING, **started, slot=slot, pid=pid, started_at=now()):
        return []
    ids = [run.id]
    for other_slot, other_pid in others:
        same = {"schedule": run.schedule, "tick_at": run.tick_at, "origin": run.origin, "number": run.number}
        row = {**same, **started, "args": run.args, "slot": other_slot, "pid": other_pid}
        ids.append(_insert(connection, {**row, "started_at": now()}))
    return [get_run(connection, one) for one in ids]


def enqueue_run(
    connection: Connection, run: ScheduleRun, schedule: Schedule, identity: NodeIdentity
) -> ScheduleRun | None:
    """Take a waiting run by enqueuing its task; both in one transaction.

    Returns:
        the run; None when another node has taken it, or the task before it has not ended.
    """
    assert schedule.queue is not None
    if not _overlap_allows(connection, run, schedule, identity):
        return None
    by = {"node_id": identity.node_id, "incarnation": identity.incarnation, "started_at": now(), "finished_at": now()}
    if not _change(connection, run.id, RunStatus.WAITING, status=RunStatus.ENQUEUED.value, **by):
        return None
    key = f"{run.schedule[-NAME_CHARS_IN_KEY:]} {run.tick_at:%Y-%m-%dT%H:%M:%S.%fZ}" if run.origin == "clock" else None
    task = NewTask(
        queue=schedule.queue,
        name=schedule.task,
        body=schedule.body,
        limit_key=schedule.limit_key,
        unique_key=key,
        unique_for=UNIQUE_KEY_SECONDS,
    )
    connection.execute(
        sa.update(schedule_runs).where(schedule_runs.c.id == run.id).values(task_id=enqueue(connection, task).id)
    )
    return get_run(connection, run.id)


def end_run(
    connection: Connection, run_id: int, status: RunStatus, error: str | None = None, traceback: str | None = None
) -> bool:
    """Write how a run ended; False when it is not running any more, whoever has ended it."""
    return _end(connection, run_id, RunStatus.RUNNING, status, error, traceback)


def abandon_run(connection: Connection, run_id: int, status: RunStatus, error: str) -> bool:
    """End a run that nobody has taken."""
    return _end(connection, run_id, RunStatus.WAITING, status, error, None)


def release_run(connection: Connection, run: ScheduleRun, *, for_any_node: bool) -> bool:
    """Let a run wait again whose process has gone before it had it."""
    nobody: dict[str, Any] = {"slot": None, "pid": None, "incarnation": None, "started_at": None}
    if for_any_node:
        nobody["node_id"] = None
    return _change(connection, run.id, RunStatus.RUNNING, status=RunStatus.WAITING.value, **nobody)


def end_runs_of_process(connection: Connection, identity: NodeIdentity, pid: int, cause: str) -> list[ScheduleRun]:
    """End the runs of a process of this node that has died."""
    its = sa.and_(
        schedule_runs.c.status == RunStatus.RUNNING.value,
        schedule_runs.c.node_id == identity.node_id,
        schedule_runs.c.incarnation == identity.incarnation,
        schedule_runs.c.pid == pid,
    )
    died = f"its process died: {cause}"
    return [run for run in find_runs(connection, its) if end_run(connection, run.id, RunStatus.DIED, died)]


def mark_lost_runs(connection: Connection, silence: float, *, as_of: datetime | None = None) -> list[int]:
    """End the runs of nodes that have been gone for ``silence`` seconds; some schedules let others run them again.

    Only a node may call it that may rescue tasks; see `peerd.manager.rescue_guard`. A node that was started again
    counts as gone when its new life is so old: processes of the earlier one may have gone on for a while. One whose
    agent alone is silent is not gone as long as the run's own process beats.

    Args:
        connection: in a transaction of its own.
        silence: seconds.
        as_of: as for `peerd.store.maintenance.rescue.rescue_untouched`.
    """
    before = seconds_from_now(-silence) if as_of is None else as_of - timedelta(seconds=silence)
    same_life = nodes.c.incarnation == schedule_runs.c.incarnation
    began_anew = sa.and_(nodes.c.incarnation.is_not(None), nodes.c.incarnation != schedule_runs.c.incarnation)
    gone = sa.or_(
        sa.and_(same_life, nodes.c.checked_at < before),
        sa.and_(nodes.c.incarnation.is_(None), nodes.c.checked_at < before),
        sa.and_(began_anew, nodes.c.started_at < before),
    )
    beats = sa.exists().where(
        processes.c.node_id == schedule_runs.c.node_id,
        processes.c.incarnation == schedule_runs.c.incarnation,
        processes.c.pid == schedule_runs.c.pid,
        processes.c.ended_at.is_(None),
        processes.c.checked_at >= before,
    )
    of_lost_nodes = sa.select(schedule_runs.c.id).join(nodes, nodes.c.id == schedule_runs.c.node_id)
    running = schedule_runs.c.status == RunStatus.RUNNING.value
    ids = connection.execute(of_lost_nodes.where(running, gone, sa.not_(beats)).limit(BATCH)).scalars().all()
    lost = [run_id for run_id in sorted(ids) if end_run(connection, run_id, RunStatus.LOST, NODE_LOST_ERROR)]
    for run_id in lost:
        _insert_rerun(connection, get_run(connection, run_id))
    return lost


def purge_runs(connection: Connection, keep: int, age: float, limit: int = BATCH) -> int:
    """Delete runs that ended more than ``age`` seconds ago, and all but the newest ``keep`` of each schedule."""
    ended = schedule_runs.c.status.not_in([status.value for status in UNFINISHED_STATUSES])
    old = sa.select(schedule_runs.c.id).where(schedule_runs.c.finished_at <= seconds_from_now(-age), ended)
    ids = set(connection.execute(old.order_by(schedule_runs.c.finished_at).limit(limit)).scalars())
    names = connection.execute(sa.select(schedule_runs.c.schedule).distinct()).scalars().all()
    for name in names:
        its = sa.select(schedule_runs.c.id).where(schedule_runs.c.schedule == name).order_by(schedule_runs.c.id.desc())
        last = connection.execute(its.offset(keep).limit(1)).scalar()
        if last is not None:
            too_many = schedule_runs.c.schedule == name, schedule_runs.c.id <= last, ended
            more = sa.select(schedule_runs.c.id).where(*too_many).order_by(schedule_runs.c.id).limit(limit)
            ids |= set(connection.execute(more).scalars())
    free = sa.select(schedule_runs.c.id).where(schedule_runs.c.id.in_(sorted(ids)[:limit]), ended)
    doomed = connection.execute(free.with_for_update(skip_locked=True)).scalars().all() if ids else ()
    if not doomed:
        return 0
    return connection.execute(sa.delete(schedule_runs).where(schedule_runs.c.id.in_(doomed), ended)).rowcount


def _insert(connection: Connection, values: Mapping[str, Any]) -> int:
    key = connection.execute(sa.insert(schedule_runs).values(dict(values))).inserted_primary_key
    assert key is not None
    return int(key[0])


def _overlap_allows(connection: Connection, run: ScheduleRun, schedule: Schedule, identity: NodeIdentity) -> bool:
    """Whether no earlier run goes on that this one must not overlap. One by hand waits for nobody.

    Nodes that ask this at once about different runs wait for each other at the schedule's row. They write it, because
    no server of a Galera cluster knows what is only locked on another one.
    """
    if run.origin == "hand" or schedule.overlap == "allow":
        return True
    clock = 0 if schedule.type == CLUSTER else identity.node_id
    row = sa.update(schedules).where(schedules.c.name == run.schedule, schedules.c.node_id == clock)
    connection.execute(row.values(updated_at=now()))
    return not is_run_open(connection, run.schedule, None if schedule.type == CLUSTER else identity.node_id)


def _insert_rerun(connection: Connection, lost: ScheduleRun) -> None:
    definition = sa.select(schedules.c.definition).where(schedules.c.name == lost.schedule, schedules.c.node_id == 0)
    text = connection.execute(definition).scalar()
    try:
        schedule = msgspec.json.decode(text or "", type=Schedule)
    except (msgspec.DecodeError, PeerdError):
        return
    if schedule.type != CLUSTER or schedule.misfire != "run_once" or lost.origin == "hand":
        return
    more = {"number": lost.number + 1, "args": lost.args}
    insert_run(connection, lost.schedule, lost.tick_at, "again", RunStatus.WAITING, **more)


def _end(
    connection: Connection, run_id: int, was: RunStatus, status: RunStatus, error: str | None, traceback: str | None
) -> bool:
    words = {
        "error": None if error is None else truncate(error, MAX_ERROR_LENGTH),
        "traceback": None if traceback is None else truncate(traceback, MAX_ERROR_LENGTH),
    }
    return _change(connection, run_id, was, status=status.value, finished_at=now(), **words)


def _change(connection: Connection, run_id: int, was: RunStatus, **values: Any) -> bool:
    own = sa.and_(schedule_runs.c.id == run_id, schedule_runs.c.status == was.value)
    return connection.execute(sa.update(schedule_runs).where(own).values(**values)).rowcount == 1


def _to_run(row: sa.RowMapping) -> ScheduleRun:
    values = dict(row)
    values["status"] = RunStatus(values["status"])
    return ScheduleRun(**values)


def run_arguments(run: ScheduleRun, schedule: Schedule) -> list[Any] | dict[str, Any]:
    """What the function is given: what this run was asked for with, else what the schedule says."""
    if run.args is None:
        return schedule.args
    found = json.loads(run.args)
    return found if isinstance(found, list | dict) else [found]
