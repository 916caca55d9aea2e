"""Runs of schedules: a row for each tick, for each process that runs it, and for each manual request.

Every run begins as ``waiting``. An agent claims it (a compare-and-set), gives it to a worker process, and writes what
the process reports. When a process dies, the agent of its node ends the run; when a node dies, another node's manager.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import InvalidSchedule, PeerdError, RunNotFound
from peerd.domain.lifecycle import FINISHED
from peerd.domain.outcome import truncate
from peerd.domain.schedule import CLUSTER, UNFINISHED_STATUSES, RunStatus, Schedule
from peerd.domain.task import NewTask
from peerd.runtime.enqueue_span import begin_enqueue_span
from peerd.store.enqueue import enqueue
from peerd.store.records import columns_of, insert_row, to_record
from peerd.store.schema.tables import nodes, processes, schedule_runs, schedules, tasks
from peerd.store.schema.types import now, seconds_from_now
from peerd.store.tasks.rows import BATCH

MAX_ERROR_LENGTH: Final = 8192
"""Characters of an error that are kept."""
UNIQUE_KEY_SECONDS: Final = 86_400.0
"""Seconds for which the unique key of a tick's task holds."""
NAME_CHARS_IN_KEY: Final = 150
"""Characters of a schedule's name in the unique key."""


class NodeIdentity(msgspec.Struct, frozen=True):
    """A node in one of its incarnations."""

    node_id: int
    incarnation: str


class ScheduleRun(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table ``schedule_runs``.

    Attributes:
        tick_at: the moment that the run is for; of a manual run, when it was requested.
        origin: ``clock``, ``start`` (immediate), ``hand``, ``custom`` (a custom trigger), ``again`` (a node was lost).
        number: 1; more for a repetition because its node was lost.
        args: JSON of arguments for this run; None: the schedule's own.
    """

    id: int
    schedule: str
    tick_at: datetime
    origin: str
    number: int
    args: str | None
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


RUN: Final = schedule_runs.c
_RUNS: Final = sa.select(*columns_of(ScheduleRun, schedule_runs))
NODE_LOST_ERROR: Final = "its node went away"


def is_running_on(identity: NodeIdentity) -> sa.ColumnElement[bool]:
    """A run is running on a node, in this incarnation."""
    own = RUN.node_id == identity.node_id, RUN.incarnation == identity.incarnation
    return sa.and_(RUN.status == RunStatus.RUNNING.value, *own)


def find_runs(connection: Connection, condition: sa.ColumnElement[bool], *, limit: int = BATCH) -> list[ScheduleRun]:
    """The oldest runs that meet a condition."""
    return _select(connection, _RUNS.where(condition).order_by(RUN.id).limit(limit))


def insert_run(
    connection: Connection, schedule: str, tick_at: datetime, origin: str, status: RunStatus, **more: Any
) -> ScheduleRun:
    """Insert a run, in any status."""
    values = {"schedule": schedule, "tick_at": tick_at, "origin": origin, "status": status.value, **more}
    if status not in UNFINISHED_STATUSES:
        values["finished_at"] = now()
    return get_run(connection, insert_row(connection, schedule_runs, values))


def request_run(connection: Connection, schedule: str, args: str | None = None) -> ScheduleRun:
    """Insert a manual run: the first agent that has the schedule claims it."""
    requested = {"schedule": schedule, "args": args, "tick_at": now()}
    return get_run(connection, insert_row(connection, schedule_runs, requested))


def get_run(connection: Connection, run_id: int) -> ScheduleRun:
    """A run.

    Raises:
        RunNotFound: there is none of this id.
    """
    runs = find_runs(connection, RUN.id == run_id)
    if not runs:
        raise RunNotFound(run_id)
    return runs[0]


def list_sibling_runs(connection: Connection, run_id: int) -> list[ScheduleRun]:
    """A run, and those of the other processes that the same request or tick has started on its node.

    Raises:
        RunNotFound: there is none of this id.
    """
    first = get_run(connection, run_id)
    fields = ("schedule", "tick_at", "origin", "number", "node_id")
    same = [RUN[field] == getattr(first, field) for field in fields]
    return find_runs(connection, sa.and_(RUN.id >= run_id, *same)) if first.node_id is not None else [first]


def list_runs(connection: Connection, schedule: str | None = None, *, limit: int = 100) -> list[ScheduleRun]:
    """The runs of a schedule, or of all, the newest first."""
    wanted = sa.true() if schedule is None else RUN.schedule == schedule
    return _select(connection, _RUNS.where(wanted).order_by(RUN.id.desc()).limit(limit))


def is_run_open(connection: Connection, schedule: str, node_id: int | None) -> bool:
    """Whether a run is open, on a node or (None) anywhere: it runs, or the task that it enqueued has not ended."""
    same = [RUN.schedule == schedule]
    if node_id is not None:
        same.append(RUN.node_id == node_id)
    running = sa.select(RUN.id).where(*same, RUN.status == RunStatus.RUNNING.value)
    if connection.execute(running.limit(1)).first() is not None:
        return True
    latest = sa.select(RUN.task_id).where(*same, RUN.status == RunStatus.ENQUEUED.value)
    task_id = connection.execute(latest.order_by(RUN.id.desc()).limit(1)).scalar()
    status = connection.execute(sa.select(tasks.c.status).where(tasks.c.id == task_id)).scalar() if task_id else None
    return status is not None and status not in FINISHED


def count_waiting_runs(connection: Connection, schedule: str, node_id: int | None) -> int:
    """How many ticks are waiting, on a node or (None) for any node."""
    ticks = RUN.schedule == schedule, RUN.status == RunStatus.WAITING.value, RUN.origin != "hand"
    place = RUN.node_id.is_(None) if node_id is None else RUN.node_id == node_id
    return connection.execute(sa.select(sa.func.count()).where(*ticks, place)).scalar_one()


def claim_run(
    connection: Connection,
    run: ScheduleRun,
    schedule: Schedule,
    identity: NodeIdentity,
    processes: Sequence[tuple[str, int]],
) -> list[ScheduleRun]:
    """Claim a waiting run for worker processes (slot and pid) of this node; for all but the first, a row is added.

    Returns:
        a run for each process; none when another node was first, or `overlap` does not allow it now.
    """
    if not _overlap_allows(connection, run, schedule, identity):
        return []
    (slot, pid), *others = processes
    started = {"status": RunStatus.RUNNING.value, "node_id": identity.node_id, "incarnation": identity.incarnation}
    if not _change(connection, run.id, RunStatus.WAITING, **started, slot=slot, pid=pid, started_at=now()):
        return []
    ids = [run.id]
    for other_slot, other_pid in others:
        same = {name: getattr(run, name) for name in ("schedule", "tick_at", "origin", "number", "args")}
        row = {**same, **started, "slot": other_slot, "pid": other_pid, "started_at": now()}
        ids.append(insert_row(connection, schedule_runs, row))
    return [get_run(connection, claimed) for claimed in ids]


def enqueue_run(
    connection: Connection, run: ScheduleRun, schedule: Schedule, identity: NodeIdentity
) -> ScheduleRun | None:
    """Claim a waiting run and enqueue its task, in one transaction.

    Returns:
        the run; None when another node was first, or `overlap` does not allow it now.
    """
    assert schedule.queue is not None
    if not _overlap_allows(connection, run, schedule, identity):
        return None
    own = {"node_id": identity.node_id, "incarnation": identity.incarnation, "started_at": now(), "finished_at": now()}
    if not _change(connection, run.id, RunStatus.WAITING, status=RunStatus.ENQUEUED.value, **own):
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
    task_id = _enqueue_traced(connection, task)
    connection.execute(sa.update(schedule_runs).where(RUN.id == run.id).values(task_id=task_id))
    return get_run(connection, run.id)


def _enqueue_traced(connection: Connection, task: NewTask) -> int:
    span = begin_enqueue_span([task])
    if span is None:
        return enqueue(connection, task).id
    with span.ending():
        [stamped] = span.stamp([task])
        span.message_id = enqueue(connection, stamped).id
    return span.message_id


def end_run(
    connection: Connection,
    run_id: int,
    status: RunStatus,
    error: str | None = None,
    traceback: str | None = None,
    *,
    was: RunStatus = RunStatus.RUNNING,
) -> bool:
    """Record the end of a run; False when it is not in the status ``was`` any more."""
    texts = {
        name: None if text is None else truncate(text, MAX_ERROR_LENGTH)
        for name, text in (("error", error), ("traceback", traceback))
    }
    return _change(connection, run_id, was, status=status.value, finished_at=now(), **texts)


def release_run(connection: Connection, run: ScheduleRun, *, for_any_node: bool) -> bool:
    """Let a claimed run wait again whose process is gone before it got the run."""
    unclaimed: dict[str, Any] = {"slot": None, "pid": None, "incarnation": None, "started_at": None}
    if for_any_node:
        unclaimed["node_id"] = None
    return _change(connection, run.id, RunStatus.RUNNING, status=RunStatus.WAITING.value, **unclaimed)


def end_runs_of_process(connection: Connection, identity: NodeIdentity, pid: int, cause: str) -> list[ScheduleRun]:
    """End the runs of a process of this node that has died."""
    running = find_runs(connection, sa.and_(is_running_on(identity), RUN.pid == pid))
    error = f"its process died: {cause}"
    return [run for run in running if end_run(connection, run.id, RunStatus.DIED, error)]


def mark_lost_runs(connection: Connection, silence: float, *, as_of: datetime | None = None) -> list[int]:
    """End the runs of nodes that are gone, and insert repetitions where `misfire` is ``run_once``; the ended ids.

    Only a node that may rescue tasks may call it; see `peerd.manager.service`. A node that was restarted counts
    as gone when its new incarnation is older than ``silence``: processes of the earlier one may run on for a while. A
    run whose own process writes heartbeats is not lost, even if the node's agent is silent.
    ``as_of`` is as for `peerd.store.rescue.rescue_untouched`.
    """
    before = seconds_from_now(-silence) if as_of is None else as_of - timedelta(seconds=silence)
    is_restarted = nodes.c.incarnation != RUN.incarnation  # null, and so false, after an orderly stop
    is_same = sa.or_(nodes.c.incarnation == RUN.incarnation, nodes.c.incarnation.is_(None))
    gone = sa.or_(sa.and_(is_same, nodes.c.checked_at < before), sa.and_(is_restarted, nodes.c.started_at < before))
    process_alive = sa.exists().where(
        processes.c.node_id == RUN.node_id,
        processes.c.incarnation == RUN.incarnation,
        processes.c.pid == RUN.pid,
        processes.c.ended_at.is_(None),
        processes.c.checked_at >= before,
    )
    of_lost_nodes = sa.select(RUN.id).join(nodes, nodes.c.id == RUN.node_id)
    running = RUN.status == RunStatus.RUNNING.value
    ids = connection.execute(of_lost_nodes.where(running, gone, sa.not_(process_alive)).limit(BATCH)).scalars().all()
    lost = [run_id for run_id in sorted(ids) if end_run(connection, run_id, RunStatus.LOST, NODE_LOST_ERROR)]
    for run_id in lost:
        _insert_rerun(connection, get_run(connection, run_id))
    return lost


def purge_runs(connection: Connection, keep: int, age: float, limit: int = BATCH) -> int:
    """Delete runs that ended more than ``age`` seconds ago, and all but the newest ``keep`` of each schedule."""
    ended = RUN.status.not_in([status.value for status in UNFINISHED_STATUSES])
    old = sa.select(RUN.id).where(RUN.finished_at <= seconds_from_now(-age), ended)
    ids = set(connection.execute(old.order_by(RUN.finished_at).limit(limit)).scalars())
    for name in connection.execute(sa.select(RUN.schedule).distinct()).scalars().all():
        runs = sa.select(RUN.id).where(RUN.schedule == name)
        last = connection.execute(runs.order_by(RUN.id.desc()).offset(keep).limit(1)).scalar()
        if last is not None:
            too_many = runs.where(RUN.id <= last, ended).order_by(RUN.id).limit(limit)
            ids |= set(connection.execute(too_many).scalars())
    free = sa.select(RUN.id).where(RUN.id.in_(sorted(ids)[:limit]), ended)
    doomed = connection.execute(free.with_for_update(skip_locked=True)).scalars().all() if ids else ()
    if not doomed:
        return 0
    return connection.execute(sa.delete(schedule_runs).where(RUN.id.in_(doomed), ended)).rowcount


def _select(connection: Connection, statement: sa.Select[Any]) -> list[ScheduleRun]:
    rows = connection.execute(statement).mappings()
    return [to_record(ScheduleRun, row, **_known_status(row)) for row in rows]


def _known_status(row: Mapping[Any, Any]) -> dict[str, Any]:
    """The status of a row; one that SQL by hand has invented counts as failed."""
    try:
        return {"status": RunStatus(row["status"])}
    except ValueError:
        return {"status": RunStatus.FAILED, "error": f"its status is {row['status']!r}, which no run can have"}


def _overlap_allows(connection: Connection, run: ScheduleRun, schedule: Schedule, identity: NodeIdentity) -> bool:
    """Whether a run may start beside the runs that are open. Manual runs ignore `overlap` but count for it.

    Nodes that check this at the same time are serialized by a write to the schedule's row: a lock alone would not be
    seen by the other servers of a Galera cluster.
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


def _change(connection: Connection, run_id: int, was: RunStatus, **values: Any) -> bool:
    own = sa.and_(RUN.id == run_id, RUN.status == was.value)
    return connection.execute(sa.update(schedule_runs).where(own).values(**values)).rowcount == 1


def run_arguments(run: ScheduleRun, schedule: Schedule) -> list[Any] | dict[str, Any]:
    """The arguments of the function: those of the run, else those of the schedule.

    Raises:
        InvalidSchedule: those of the run are no JSON.
    """
    if run.args is None:
        return schedule.args
    try:
        found = json.loads(run.args)
    except (ValueError, RecursionError) as error:
        raise InvalidSchedule("args", f"the row of run {run.id} has no JSON there: {error}") from error
    return found if isinstance(found, list | dict) else [found]
