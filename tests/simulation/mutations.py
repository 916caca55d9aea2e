"""peerd, broken on purpose: each variant takes one precaution away. The rules must catch every one."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final
from unittest.mock import patch

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd import Context, shell
from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.known_handlers import UnsupportedTask
from peerd.domain.lifecycle import Status, TaskEvent, sources
from peerd.domain.outcome import Failed, Released
from peerd.domain.task import Task
from peerd.gateway.gateway import Gateway
from peerd.gateway.group_commit import OperationFailed
from peerd.gateway.operations import DeleteHeld
from peerd.gateway.reservation_ends import Reconciliation, ReservationEnds
from peerd.gateway.waiting import QueueClient, Reservation
from peerd.manager.service import RescueGuard
from peerd.store import chore_batches, outcomes, rescue
from peerd.store.jobs import holding, reserving
from peerd.store.limits import UNLIMITED, LimitCapacity
from peerd.store.outcomes import ClaimId
from peerd.store.schema.tables import tasks
from peerd.store.schema.types import now
from peerd.store.take import backlog, claiming, eligibility, on_sqlite, turns
from peerd.store.take.claimer import ClaimResult
from peerd.store.take.claiming import LimitedClaim
from peerd.store.take.turns import KeyRoundRobin
from peerd.store.tasks import actions
from peerd.store.tasks.actions import delete_rows
from peerd.store.tasks.conditions import status_is
from peerd.store.tasks.rows import TASK_COLUMNS, lock_tasks, to_task, update_tasks
from peerd.work import attempt_outcome
from peerd.work.active_claims import ActiveClaims, Toucher
from peerd.work.attempt_execution import Execution
from peerd.work.attempt_outcome import StopReason, outcome_of_exception, outcome_of_value
from peerd.work.outcome_writer import OutcomeWriter
from peerd.work.task_fetcher import LimitedPolling, TaskFetcher
from peerd.work.task_worker import DeclaredHandlerAdapter
from tests.simulation.plan import CLIENTS, KEYS, VERSIONS
from tests.support.caches import clear_caches


class Mutation(msgspec.Struct, frozen=True):
    """A removed precaution: replacements of attributes, as (object, attribute, new value).

    ``focus`` names the faults, acts and handlers that detect it soonest, and ``seed`` a seed that has detected it. That
    seed is tried first; if it no longer detects the variant, the search continues from 0.
    """

    name: str
    seed: int
    focus: tuple[str, ...]
    patches: tuple[tuple[Any, str, Any], ...]


def variant(name: str, seed: int, focus: tuple[str, ...], *patches: tuple[Any, str, Any]) -> Mutation:
    return Mutation(name, seed, focus, patches)


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    with ExitStack() as stack:
        for where, attribute, instead in mutation.patches:
            stack.enter_context(patch.object(where, attribute, instead))
        for module in (claiming, on_sqlite, outcomes, backlog, turns, reserving):
            clear_caches(module)
            stack.callback(clear_caches, module)
        yield


def _touch_by_process(self: Any) -> None:
    mine = sa.update(tasks).where(tasks.c.process_id == self._process_id, status_is(Status.WORKING))
    self._database.run(_execute, mine.values(checked_at=now()))


def _execute(connection: Any, statement: Any) -> None:
    connection.execute(statement)


async def _run_code(code: Any, ctx: Any) -> Any:
    code.prepare(ctx)
    await code.before(ctx)
    return await code.run(ctx)


async def _end_without_waiting(self: Any) -> Any:
    running = asyncio.ensure_future(_run_code(self._handler_adapter, self.ctx))
    while not running.done() and self.stop_reason is not StopReason.STOPPING:
        with suppress(asyncio.CancelledError):
            await asyncio.wait([running], timeout=0.1)
    if not running.done():
        return Released("its process was stopped")
    error = running.exception() if not running.cancelled() else asyncio.CancelledError()
    if isinstance(error, asyncio.CancelledError):
        return self._outcome_of_stop()
    if error is not None:
        return outcome_of_exception(error, self._handler_adapter, self.delay)
    return outcome_of_value(running.result(), self.delay)


async def _claim_in_two_steps(self: Any, limit: int, *, quarantined: bool) -> ClaimResult:
    """Read the candidates, then write by primary key, without the conditions."""
    lanes = claiming._lanes(self._claimer, quarantined=quarantined)

    async def claim_once(token: int) -> ClaimResult:
        ids = await self._database.read(_read_candidates, self._claimer, limit, lanes)
        return await self._database.run(_take, self._claimer, token, ids) if ids else ClaimResult([])

    return await self._claim_and_hold(claim_once)  # type: ignore[no-any-return]


def _read_candidates(connection: Any, claimer: Any, limit: int, lanes: tuple[int, int]) -> list[int]:
    return on_sqlite.candidates(connection, claimer, lanes, limit)


def _take(connection: Any, claimer: Any, token: int, ids: list[int]) -> ClaimResult:
    terms = claiming.ClaimTerms(claimer.max_attempts_defaults())
    mine = sa.update(tasks).where(tasks.c.id.in_(ids)).values(terms.values(now()))
    connection.execute(mine, claimer.parameters() | {"token": token})
    rows = connection.execute(sa.select(*TASK_COLUMNS).where(tasks.c.id.in_(ids))).mappings()
    return ClaimResult([to_task(row) for row in rows])


async def _turn_in_two_steps(self: Any, queue: str, limit: int, *, quarantined: bool) -> LimitedClaim:
    """Choose the tasks and claim them afterwards: the claim mutex is released in between."""
    taken = await self._database.read(_choose_unlocked, self._claimer, queue, limit, quarantined)

    async def take(token: int) -> ClaimResult:
        lanes = claiming._lanes(self._claimer, quarantined=quarantined)
        return ClaimResult(await self._database.run(_write_claims, self._claimer, lanes, token, taken) if taken else [])

    return LimitedClaim((await self._claim_and_hold(take)).tasks)


def _choose_unlocked(connection: Any, claimer: Any, queue: str, limit: int, quarantined: bool) -> list[int]:  # noqa: FBT001
    capacity = LimitCapacity(connection, queue)
    wanted = min(limit, capacity.for_queue())
    lanes, without = claiming._lanes(claimer, quarantined=quarantined), capacity.queue_is_limited
    keys = KeyRoundRobin(connection, queue, lanes, after="", page=wanted + 1, with_unkeyed=without)
    return turns._choose_ids(keys, capacity, wanted, None)[0] if wanted else []


def _write_claims(connection: Any, claimer: Any, lanes: tuple[int, int], token: int, ids: list[int]) -> list[Any]:
    return claiming.claim_ids(connection, claimer, lanes, token, ids, with_key=True)


async def _ignore_lost_claims(self: Any, token: int, claim_once: Any) -> ClaimResult:
    try:
        return await claim_once(token)  # type: ignore[no-any-return]
    except DatabaseUnavailable:
        return ClaimResult([])


def _drop_outcomes(add: Any) -> Any:
    def dropping(self: Any, ended: Any) -> None:
        if self._outages._since is None:
            add(self, ended)
        else:
            self._count += 1
            self._on_written([ended], {ended.held})

    return dropping


async def _claim_crashed_among_others(self: Any, wanted: int, running: int, free: int) -> list[Any]:
    claimed: list[Any] = await self._claim_quarantined() or (await self._claim_next(wanted, free)).tasks
    return claimed


def _unknown_among_in_flight_too(self: Any, found: Any) -> list[Any]:
    return [held for held in found if held not in self._held]


def _without_lease(connection: Any, ids: Any, *conditions: Any, **values: Any) -> int:
    values.pop("lease", None)
    return update_tasks(connection, ids, *conditions, **values)


def _holder_without_lease(self: Any, moment: Any) -> dict[str, Any]:
    return {name: value for name, value in _HOLDER(self, moment).items() if name != "lease"}


def _expire_whatever_it_does(connection: Any, status: Status, until: Any, limit: int) -> int:
    if status is not Status.PENDING:
        return _DELETE(connection, status, until, limit)
    late = sa.select(tasks.c.id).where(tasks.c.finish_at <= now()).limit(limit)
    doomed = lock_tasks(connection, connection.execute(late).scalars(), tasks.c.finish_at <= now())
    delete_rows(connection, doomed)
    return len(doomed)


def _ignore_database_clock(self: Any, monotonic: float, database: Any) -> None:
    """The rescue guard without its check of the database's clock."""
    if self._since is None or (self._last is not None and monotonic - self._last[0] > self.gap):
        self._since = monotonic
    self._last = (monotonic, database)


def _never_poll_again(self: Any, queue: str, requested: int, won: int, again_in: float | None) -> None:
    _TOOK(self, queue, requested, won, again_in)
    if not won:
        self._not_before[queue] = math.inf


def _dead_at_once(task: Any, error: UnsupportedTask, snapshot: Any, unknown_after: float) -> Failed:
    return Failed(error=str(error))


def _prepare_leniently(self: Any, ctx: Context) -> None:
    """An argument that the code does not know is left out."""
    known = self._handler.arguments.signature
    given = msgspec.json.decode(ctx.task.body or "{}")
    body = msgspec.json.encode({name: value for name, value in given.items() if name in known}).decode()
    with patch.object(ctx, "task", msgspec.structs.replace(ctx.task, body=body)):
        _PREPARE(self, ctx)


_PREPARE: Final = DeclaredHandlerAdapter.prepare
_TOOK: Final = LimitedPolling.record_claim
_HOLDER: Final = claiming.ClaimTerms.values
_ADD: Final = OutcomeWriter.add
_DELETE: Final = chore_batches._delete


def _lease_alone(lease: Any) -> tuple[Any, ...]:
    return (tasks.c.lease == lease,)


def _status_alone(lease: Any) -> tuple[Any, ...]:
    return (status_is(*sources(TaskEvent.COMPLETE)),)


def _ignore(*_: Any, **__: Any) -> None:
    """A precaution is left out."""


async def _never_again(*_: Any) -> None:
    await asyncio.get_running_loop().create_future()


def _half_the_time(self: Any, job: Any, now: float) -> None:
    _RESERVATION(self, job, now)
    self.deadline = now + job.ttr / 2


def _delete_whoever_holds(self: Any, client: QueueClient, job_id: int, answer: Any) -> None:
    for holder in self._operations._attempts.clients:
        held = holder.reservations.pop(job_id, None)
        if held is not None:
            self._operations.submit(client, DeleteHeld(held.claim, keep=False), answer)
            return
    _DELETE_OF(self, client, job_id, answer)


def _deleted_for_certain(self: Any, client: QueueClient, held: Reservation, answer: Any, result: Any) -> None:
    _ENDED_BY_HOLDER(self, client, held, answer, True if isinstance(result, OperationFailed) else result)


def _delete_by_id(
    connection: Connection, process_id: int, held: Sequence[ClaimId], *, keep: frozenset[ClaimId]
) -> set[ClaimId]:
    connection.execute(sa.delete(tasks).where(tasks.c.id.in_([claim.id for claim in held])))
    return set(held)


def _release_by_id(connection: Connection, process_id: int, releases: Sequence[Any]) -> set[ClaimId]:
    ids = [release.claim.id for release in releases]
    taken = sa.update(tasks).where(tasks.c.id.in_(ids), status_is(Status.WORKING))
    connection.execute(taken.values(status=Status.PENDING, deadline_at=None, process_id=None))
    return {release.claim for release in releases}


def _take_back_as_claims(connection: Connection, locked: Sequence[Task], *args: Any, **options: Any) -> Any:
    return _TAKE_BACK(
        connection, [msgspec.structs.replace(task, deadline_at=None) for task in locked], *args, **options
    )


_TAKE_BACK: Final = rescue._take_back
_RESERVATION: Final = Reservation.__init__
_DELETE_OF: Final = ReservationEnds.delete
_ENDED_BY_HOLDER: Final = ReservationEnds._ended_by_holder


MUTATIONS: Final = (
    variant("outcomes are written without the lease", 11,
            ("freeze a process", "freeze in the answer", "long", "stubborn", "cancel", "retry"),
            (outcomes, "is_held", _status_alone)),
    variant("outcomes are written regardless of the status", 11,
            ("kill, and the call comes late", "let the call come late", "long", "quick", "pause"),
            (outcomes, "is_held", _lease_alone)),
    variant("a claim does not raise the lease", 0, (),
            (claiming.ClaimTerms, "values", _holder_without_lease)),
    variant("a claim reads first and writes without conditions", 6, (), (TaskFetcher, "_claim", _claim_in_two_steps)),
    variant("a claim ignores the row's times", 1, ("insert by hand", "flaky"),
            (eligibility, "is_startable", sa.true)),
    variant("a claim whose answer was lost is forgotten", 4, ("lose the answer",),
            (TaskFetcher, "_claim_once", _ignore_lost_claims),
            (Toucher, "_release_unknown", lambda self, found: None)),
    variant("nodes rescue without a rescue guard", 29, ("step the clock", "long"),
            (RescueGuard, "may_rescue", lambda self, monotonic: True)),
    variant("a rescue does not check whether the holder lives", 8, ("lock a row", "long"),
            (rescue, "_is_held_by_live_process", lambda before: sa.false())),
    variant("the rescue guard ignores steps of the clock", 29, ("step the clock", "long"),
            (RescueGuard, "record_heartbeat", _ignore_database_clock)),
    variant("touch is by process, not by claims", 3, ("cancel", "move", "retry", "long"),
            (Toucher, "_touch", _touch_by_process)),
    variant("claims in flight count as unknown", 4, ("delay the answer",),
            (ActiveClaims, "unknown_among", _unknown_among_in_flight_too)),
    variant("a stop releases running tasks", 0, ("stop a node", "recycle a worker", "stubborn"),
            (Execution, "_run", _end_without_waiting)),
    variant("outcomes are dropped while the database is away", 0, ("database away", "fail the call", "long", "flaky"),
            (OutcomeWriter, "add", _drop_outcomes(_ADD))),
    variant("a quarantined task runs beside other tasks", 4, ("poison", "long"),
            (TaskFetcher, "claim", _claim_crashed_among_others)),
    variant("attempts are not recorded", 0, ("flaky",), (outcomes, "record_attempts", lambda *args: None)),
    variant("a retry by hand leaves the lease", 1, ("retry", "long"), (actions, "update_tasks", _without_lease)),
    variant("no key is full", 1, (KEYS, "long"), (LimitCapacity, "for_key", lambda self, key: UNLIMITED)),
    variant("no queue is full", 7, (KEYS, "long"), (LimitCapacity, "for_queue", lambda self: UNLIMITED)),
    variant("what runs is not counted", 7, (KEYS, "long"), (LimitCapacity, "_count_running", lambda self: Counter())),
    variant("starts are not recorded", 1, (KEYS, "quick"),
            (LimitCapacity, "record_starts", lambda self, turn, started: None)),
    variant("a plain claim takes from limited queues", 14, (KEYS, "long"),
            (eligibility, "is_limited", lambda queue: sa.false())),
    variant("a limited claim chooses and writes in two steps", 1, (KEYS, "long"),
            (TaskFetcher, "_claim_limited", _turn_in_two_steps)),
    variant("a limited claim without tasks is the last one", 1, (KEYS, "long"),
            (LimitedPolling, "record_claim", _never_poll_again), (LimitedPolling, "on_capacity_change", _ignore)),
    variant("a task that the code does not know is dead at once", 2, (VERSIONS, "enqueue"),
            (attempt_outcome, "decide_unsupported_task", _dead_at_once)),
    variant("an argument that is not known is left out", 2, (VERSIONS, "enqueue"),
            (DeclaredHandlerAdapter, "prepare", _prepare_leniently)),
    variant("what runs is expired", 85, ("long",), (chore_batches, "_delete", _expire_whatever_it_does)),
    variant("a closed connection keeps its jobs", 1, (CLIENTS,), (ReservationEnds, "return_job", _ignore)),
    variant("a deadline passes without a release", 0, (CLIENTS,), (ReservationEnds, "expire", _ignore)),
    variant("a deadline comes too early", 0, (CLIENTS,), (Reservation, "__init__", _half_the_time)),
    variant("a client deletes what another one holds", 6, (CLIENTS,),
            (ReservationEnds, "delete", _delete_whoever_holds)),
    variant("a delete that failed is answered as done", 7, (CLIENTS, "fail the call"),
            (ReservationEnds, "_ended_by_holder", _deleted_for_certain)),
    variant("a reserved job is deleted without the lease", 6,
            (CLIENTS, "freeze a process", "freeze in the answer", "move"), (holding, "delete_held", _delete_by_id)),
    variant("a reserved job is released without the lease", 30,
            (CLIENTS, "freeze a process", "freeze in the answer", "move"), (holding, "release", _release_by_id)),
    variant("a reservation whose answer was lost is forgotten", 3, (CLIENTS, "lose the answer"),
            (Reconciliation, "_compare", _ignore)),
    variant("waiting clients depend on rings", 84, (CLIENTS,), (Gateway, "poll_for_waiters", _never_again)),
    variant("a gateway process sends no heartbeat", 0, (CLIENTS, "enqueue"),
            (shell, "keep_heartbeat", _never_again)),
    variant("a rescue takes reservations from living processes", 139, (CLIENTS, "enqueue"),
            (rescue, "_is_held_by_live_process", lambda before: sa.false())),
    variant("the death of a gateway process counts for its jobs", 1, (CLIENTS, "kill a process"),
            (rescue, "_take_back", _take_back_as_claims)),
)  # fmt: skip
