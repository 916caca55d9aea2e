"""The chores of a manager: what keeps the tables healthy, makes time series coarser, and carries bulk actions out.

Every node's manager has all of them; each is safe to run on all nodes at once, and those with ``only_on_first`` run on
the first active node alone. A chore does one bounded batch in a transaction and reports its number of rows. After a
full batch it pauses shortly and does the next one, until its time slice is over (`peerd.manager.service`). A chore with
``due`` runs only when that moment has come, according to the row that each round reads. Rescue, lost runs and the
activity of nodes depend on the manager's own heartbeats, and are steps of `peerd.manager.service`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy.engine import Connection

from peerd.config.settings import ManagerSettings, QueueSettings, StatisticsSettings
from peerd.domain.lifecycle import Status
from peerd.manager.walks import HistoryWalk, SeriesWalk, make_walks
from peerd.runtime.observability.events import BulkActionEnded, BulkActionStarted, BulkChunkDone, Event
from peerd.store import chore_batches as batches
from peerd.store.alerts import follow_silent_nodes, purge_alerts
from peerd.store.attempt_series import purge_statistics, roll_up
from peerd.store.audit import purge_entries
from peerd.store.bulk import purge_bulk
from peerd.store.bulk_chunks import PAUSE_RATIO, ChunkResult, ChunkSize, carry_out_chunk
from peerd.store.chore_batches import HistoryStep
from peerd.store.due import DueMaintenance
from peerd.store.enqueue import purge_idempotency_keys
from peerd.store.limits import purge_limit_starts
from peerd.store.node_requests import purge_requests
from peerd.store.nodes import purge_nodes
from peerd.store.schedule_runs import purge_runs
from peerd.store.schedules import purge_schedules
from peerd.store.tasks.log_lines import purge_lines
from peerd.store.time_series import HOUR, MINUTE, TEN_MINUTES, RollupStep
from peerd.store.users import purge_login_failures, purge_sessions

ChoreDue = Callable[[DueMaintenance, ManagerSettings], datetime | None]
"""When there is something to do; None: nothing is known that needs the chore."""


class ChoreBatch(NamedTuple):
    """A batch that was committed.

    Attributes:
        rows: how many it treated.
        has_more: whether there are more.
        pause: seconds until the next batch, at the least.
        events: what else it did.
    """

    rows: int
    has_more: bool
    pause: float = 0.0
    events: Sequence[Event] = ()


def is_full_batch(rows: int, limit: int, _: float) -> ChoreBatch:
    """The batch of an operation that treats as many rows as it may if there are so many."""
    return ChoreBatch(rows, rows >= limit)


class Chore(msgspec.Struct, frozen=True):
    """A chore: its name, its operation and the arguments of it, when it is due, and the least time between two runs.

    Attributes:
        run: a function over a connection and the arguments.
        periods: between two runs, in units of ``[manager] every``.
        record: called with the result of ``run``, when that is committed, the most rows of a batch, and how long it
            took.
        only_on_first: whether the first of the active nodes runs it for all. It is safe on several at once
            nevertheless.
    """

    name: str
    run: Callable[..., Any]
    arguments: Callable[[ManagerSettings], tuple[Any, ...]] = lambda s: (s.batch,)
    due: ChoreDue = lambda due, _: due.now
    periods: int = 1
    record: Callable[[Any, int, float], ChoreBatch] = is_full_batch
    only_on_first: bool = False


def apply_pinned_policy(connection: Connection, settings: ManagerSettings) -> int:
    """Free or fail the tasks that have been pinned to a silent node for ``pinned_after``; with ``wait``, none."""
    match settings.pinned_policy:
        case "move":
            return batches.free_pinned(connection, settings.pinned_after, settings.batch)
        case "fail":
            return batches.fail_pinned(connection, settings.pinned_after, settings.batch)
        case "wait":
            return 0


def moment_after(since: datetime | None, age: float) -> datetime | None:
    """``age`` seconds after a moment, if there is one."""
    return None if since is None else since + timedelta(seconds=age)


def _purging(
    status: Status, oldest: Callable[[DueMaintenance], datetime | None], age: Callable[[ManagerSettings], float]
) -> Chore:
    """The chore that deletes tasks which have been in a status for their age."""
    return Chore(
        f"purge {status}",
        batches.purge,
        lambda s: (status, age(s), s.batch),
        lambda due, s: moment_after(oldest(due), age(s)),
        periods=10,
    )


PURGE_DONE: Final = f"purge {Status.DONE}"
MARGIN: Final = 0.002
"""Seconds after a pause at which it is over on the database's clock as well."""

CHORES: Final = (
    Chore("stage scheduled", batches.stage_due, lambda s: (Status.SCHEDULED, s.batch), lambda due, _: due.scheduled),
    Chore("stage failures", batches.stage_due, lambda s: (Status.FAILURE, s.batch), lambda due, _: due.failure),
    Chore("postpone", batches.postpone, due=lambda due, _: due.ahead and due.now, periods=2),
    Chore("expire", batches.expire, due=lambda due, _: due.pending),
    _purging(Status.DONE, lambda due: due.done, lambda s: s.max_completed),
    _purging(Status.CANCELED, lambda due: due.canceled, lambda s: s.max_completed),
    _purging(Status.DEAD, lambda due: due.dead, lambda s: s.max_failed),
    Chore("purge keys", batches.purge_keys, due=lambda due, _: due.key, periods=30),
    Chore("purge idempotency keys", purge_idempotency_keys, periods=600),
    Chore("purge audit", purge_entries, lambda s: (s.max_audit_age, s.batch), periods=600),
    Chore("purge alerts", purge_alerts, lambda s: (s.max_alerts, s.max_alert_age, s.batch), periods=600),
    Chore("follow silent nodes", follow_silent_nodes, periods=60, only_on_first=True),
    Chore("purge sessions", purge_sessions, periods=3600),
    Chore("purge login failures", purge_login_failures, periods=3600),
    Chore("purge requests", purge_requests, periods=600),
    Chore("purge starts", purge_limit_starts, due=lambda due, _: due.start, periods=30),
    Chore("purge bulk actions", purge_bulk, lambda s: (s.max_bulk_age, s.batch), periods=3600),
    Chore("purge log lines", purge_lines, lambda s: (s.max_line_age, s.batch), periods=600),
    Chore("purge processes", batches.purge_processes, lambda s: (s.max_failed, s.batch), periods=600),
    Chore("purge runs", purge_runs, lambda s: (s.max_runs, s.max_run_age, s.batch), periods=300),
    Chore("purge schedules", purge_schedules, lambda s: (s.max_run_age,), periods=600),
    Chore("purge nodes", purge_nodes, lambda s: (s.max_node_age, s.batch), periods=3600),
    Chore(
        "pinned",
        apply_pinned_policy,
        lambda s: (s,),
        lambda due, s: None if s.pinned_policy == "wait" else due.now,
        periods=10,
    ),
)


def make_chores(
    queues: Mapping[str, QueueSettings], settings: ManagerSettings, clock: Callable[[], float]
) -> tuple[Chore, ...]:
    """The chores of a manager: where queues have a history of their own, done tasks are purged by walks.

    Args:
        queues: the sections ``[queues.NAME]``.
        settings: for the age of all other queues.
        clock: monotonic seconds.
    """
    walks = make_walks(queues, settings.max_completed, clock)
    if not walks:
        return tuple(CHORES)
    return (*(chore for chore in CHORES if chore.name != PURGE_DONE), *map(_walking_chore, walks))


def statistics_chores(settings: StatisticsSettings, clock: Callable[[], float]) -> list[Chore]:
    """The chores of the time series of attempts: they make coarser buckets of finer ones, and delete old ones.

    Args:
        settings: how long buckets of each step are kept.
        clock: monotonic seconds.
    """
    ages = {MINUTE: settings.keep_minutes, TEN_MINUTES: settings.keep_ten_minutes, HOUR: settings.keep_hours}
    walks = {TEN_MINUTES: ages[MINUTE], HOUR: ages[TEN_MINUTES]}
    rolling = [_rolling_chore(step, SeriesWalk(step, roll_up, kept, clock)) for step, kept in walks.items()]
    return rolling + [
        Chore(
            f"purge statistics of {step} s",
            purge_statistics,
            lambda s, step=step, age=age: (step, age, s.batch),  # type: ignore[misc]
            periods=600,
            only_on_first=True,
        )
        for step, age in ages.items()
    ]


def _rolling_chore(step: int, walk: SeriesWalk) -> Chore:
    def record(made: RollupStep, _: int, __: float) -> ChoreBatch:
        return ChoreBatch(made.rows, walk.record(made))

    return Chore(
        f"roll up statistics to {step} s",
        walk.run,
        lambda _: (),
        due=lambda due, _: walk.due_at(due.newest_bucket),
        periods=30,
        record=record,
        only_on_first=True,
    )


def _walking_chore(walk: HistoryWalk) -> Chore:
    def record(step: HistoryStep, limit: int, _: float) -> ChoreBatch:
        return ChoreBatch(step.deleted, walk.record(step, limit))

    age, (first, *more) = walk.wanted.age, sorted(walk.wanted.queues)  # a queue has one age, so the name is unique
    name = PURGE_DONE if walk.wanted.are_exceptions else f"{PURGE_DONE} of {first}"
    if more and not walk.wanted.are_exceptions:
        name += f" and {len(more)} more"
    return Chore(name, walk.run, due=lambda due, _: moment_after(due.done, age), periods=10, record=record)


# ---------------------------------------------------------------- bulk actions


def bulk_chore(largest: int) -> Chore:
    """The chore that carries bulk actions out, beside the managers of other nodes: a chunk of tasks is a batch.

    Args:
        largest: tasks of a chunk.
    """
    size = ChunkSize(largest)

    def record(result: ChunkResult, _: int, seconds: float) -> ChoreBatch:
        if result.rows * 2 >= size.tasks:
            size.record(seconds)
        pause = max(PAUSE_RATIO * seconds, result.pause + MARGIN)
        return ChoreBatch(0, result.has_more, pause, events_of_chunk(result))

    return Chore(
        "bulk actions",
        carry_out_chunk,
        lambda _: (size.tasks,),
        due=lambda due, _: due.now if due.bulk else None,
        record=record,
    )


def events_of_chunk(result: ChunkResult) -> list[Event]:
    """What has happened to a bulk action in a chunk that was committed."""
    bulk = result.bulk
    if bulk is None:
        return []
    number, action, found = bulk.id, bulk.action_name, list[Event]()
    if result.began:
        found.append(BulkActionStarted(bulk_id=number, action=action, matched=bulk.matched, at_least=bulk.at_least))
    if result.rows:
        rows, queues, revoked = result.rows, result.queues, result.revoked
        found.append(BulkChunkDone(bulk_id=number, action=action, rows=rows, queues=queues, revoked=revoked))
    if bulk.has_ended:
        seconds = (bulk.updated_at - (bulk.started_at or bulk.updated_at)).total_seconds()
        counts = {"done": bulk.done, "skipped": bulk.skipped, "failed": bulk.failed}
        state, error = bulk.state, bulk.error
        found.append(
            BulkActionEnded(
                bulk_id=number, action=action, state=state, seconds=max(seconds, 0.0), error=error, **counts
            )
        )
    return found
