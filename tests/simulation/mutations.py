"""peerd, broken on purpose: each variant takes one precaution away. The rules must catch every one."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final
from unittest.mock import patch

import msgspec
import sqlalchemy as sa

from peerd.domain.errors import DatabaseAway
from peerd.domain.lifecycle import Event, Status, sources
from peerd.domain.outcome import Released
from peerd.manager.rescue_guard import Pulse
from peerd.store.claim import candidates, claim, claim_values, compare_and_set
from peerd.store.claim import claimer as claimers
from peerd.store.claim.claimer import Claimed
from peerd.store.limits import limited_claim
from peerd.store.limits.capacity import UNLIMITED, Rooms
from peerd.store.limits.key_round_robin import Turns
from peerd.store.limits.limited_claim import Turn
from peerd.store.maintenance import chore_batches, rescue
from peerd.store.outcomes import complete, recording
from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import tasks
from peerd.store.tasks import actions
from peerd.store.tasks.actions import delete_rows
from peerd.store.tasks.conditions import status_is
from peerd.store.tasks.rows import TASK_COLUMNS, lock_tasks, to_task, update_tasks
from peerd.work.attempts import unknown_handlers
from peerd.work.attempts.attempt_execution import Execution
from peerd.work.attempts.attempt_outcome import judge_error, judge_value
from peerd.work.attempts.outcome_writer import OutcomeWriter
from peerd.work.attempts.time_limits import Because
from peerd.work.claims.active_claims import Holdings
from peerd.work.claims.limited_polling import TurnTaking
from peerd.work.claims.task_fetcher import Claiming
from peerd.work.claims.toucher import Toucher
from peerd.work.task_worker import HandlerCode
from tests.simulation.plan import KEYS, VERSIONS
from tests.simulation.versions import dead_at_once, prepare_leniently


class Variant(msgspec.Struct, frozen=True):
    """A precaution that is taken away: for each place (object, attribute) what stands there instead.

    ``focus`` names the faults, acts and handlers by which it shows soonest, and ``seed`` one that has caught it. That
    seed is tried first; the search goes on from 0 where it catches the variant no more.
    """

    name: str
    patches: tuple[tuple[Any, str, Any], ...]
    focus: tuple[str, ...] = ()
    seed: int = 0


@contextmanager
def broken(variant: Variant) -> Iterator[None]:
    """peerd without that precaution."""
    with ExitStack() as stack:
        for where, attribute, instead in variant.patches:
            stack.enter_context(patch.object(where, attribute, instead))
        for made_once in (claim, compare_and_set, complete, candidates, limited_claim):
            made_once.forget_statements()
            stack.callback(made_once.forget_statements)
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
    """A stop writes that a task is given back while its handler still runs."""
    running = asyncio.ensure_future(_run_code(self._code, self.ctx))
    while not running.done() and self.because is not Because.STOPPING:
        with suppress(asyncio.CancelledError):
            await asyncio.wait([running], timeout=0.1)
    if not running.done():
        return Released("its process was stopped")
    error = running.exception() if not running.cancelled() else asyncio.CancelledError()
    if isinstance(error, asyncio.CancelledError):
        return self._judge_end()
    if error is not None:
        return judge_error(error, self._code, self.delay)
    return judge_value(running.result(), self.delay)


async def _claim_in_two_steps(self: Any, limit: int, *, alone: bool) -> Claimed:
    """Read the head, then write by primary key, without the conditions."""
    lanes = (-1, -1 - self._claimer.node_id) if alone else (0, self._claimer.node_id)

    async def ask(token: int) -> Claimed:
        ids = await self._database.read(_head, self._claimer, limit, lanes)
        return await self._database.run(_take, self._claimer, token, ids) if ids else Claimed([])

    return await self._held(ask)  # type: ignore[no-any-return]


def _head(connection: Any, claimer: Any, limit: int, lanes: tuple[int, int]) -> list[int]:
    statement = candidates.candidates(claimer.queues, lanes)
    return list(connection.execute(statement, claimers.who(claimer) | {"limit": limit}).scalars())


def _take(connection: Any, claimer: Any, token: int, ids: list[int]) -> Claimed:
    mine = sa.update(tasks).where(tasks.c.id.in_(ids)).values(claim_values.holder(claimers.defaults_of(claimer), now()))
    connection.execute(mine, claimers.who(claimer) | {"token": token})
    rows = connection.execute(sa.select(*TASK_COLUMNS).where(tasks.c.id.in_(ids))).mappings()
    return Claimed([to_task(row) for row in rows])


async def _turn_in_two_steps(self: Any, queue: str, limit: int, *, alone: bool) -> Turn:
    """Choose what to claim, and claim it afterwards: the lock of the turn is let go in between."""
    taken = await self._database.read(_choose_unlocked, self._claimer, queue, limit, alone)

    async def take(token: int) -> Claimed:
        lanes = claimers.lanes_of(self._claimer, alone=alone)
        return Claimed(await self._database.run(_win, self._claimer, lanes, token, taken) if taken else [])

    return Turn((await self._held(take)).tasks)


def _choose_unlocked(connection: Any, claimer: Any, queue: str, limit: int, alone: bool) -> list[int]:  # noqa: FBT001
    rooms = Rooms(connection, queue)
    wanted = min(limit, rooms.of_queue())
    lanes, without = claimers.lanes_of(claimer, alone=alone), rooms.has_limit
    keys = Turns(connection, queue, lanes, after="", page=wanted + 1, without_key=without)
    return limited_claim._choose(keys, rooms, wanted)[0] if wanted else []


def _win(connection: Any, claimer: Any, lanes: tuple[int, int], token: int, ids: list[int]) -> list[Any]:
    return compare_and_set.win(connection, claimer, lanes, token, ids, by_turns=True)


async def _forget_lost_claims(self: Any, token: int, ask: Any) -> Claimed:
    try:
        return await ask(token)  # type: ignore[no-any-return]
    except DatabaseAway:
        return Claimed([])


def _drop_outcomes(add: Any) -> Any:
    def dropping(self: Any, ended: Any) -> None:
        if self._outages._since is None:
            add(self, ended)
        else:
            self._written([ended], {ended.held})

    return dropping


async def _stay_among_others(self: Any, wanted: int, running: int, free: int) -> list[Any]:
    """Tasks that have crashed a process are claimed like all others, into any free place."""
    claimed: list[Any] = await self._claim_alone() or (await self._claim_next(wanted, free)).tasks
    return claimed


def _strays_in_flight_too(self: Any, found: Any) -> list[Any]:
    return [held for held in found if held not in self._held]


def _without_lease(connection: Any, ids: Any, *conditions: Any, **values: Any) -> int:
    values.pop("lease", None)
    return update_tasks(connection, ids, *conditions, **values)


def _holder_without_lease(defaults: Any, moment: Any) -> dict[str, Any]:
    return {name: value for name, value in _HOLDER(defaults, moment).items() if name != "lease"}


def _expire_whatever_it_does(connection: Any, limit: int = 500) -> int:
    late = sa.select(tasks.c.id).where(tasks.c.finish_at <= now()).limit(limit)
    doomed = lock_tasks(connection, connection.execute(late).scalars(), tasks.c.finish_at <= now())
    delete_rows(connection, doomed)
    return len(doomed)


def _see_gaps_only(self: Any, monotonic: float, database: Any) -> None:
    """The pulse as it would be without an eye on the database's clock."""
    if self._since is None or (self._last is not None and monotonic - self._last[0] > self.gap):
        self._since = monotonic
    self._last = (monotonic, database)


def _never_again_in_vain(self: Any, queue: str, asked: int, won: int, again_in: float | None) -> None:
    _TOOK(self, queue, asked, won, again_in)
    if not won:
        self._not_before[queue] = math.inf


_TOOK: Final = TurnTaking.took
_HOLDER: Final = claim_values.holder
_ADD: Final = OutcomeWriter.add


def _lease_alone(lease: Any) -> tuple[Any, ...]:
    return (tasks.c.lease == lease,)


def _status_alone(lease: Any) -> tuple[Any, ...]:
    return (status_is(*sources(Event.COMPLETE)),)


def _in_both(attribute: str, instead: Any, *modules: Any) -> tuple[tuple[Any, str, Any], ...]:
    return tuple((module, attribute, instead) for module in modules)


VARIANTS: Final = (
    Variant(
        "outcomes are written without the lease",
        ((recording, "is_held", _status_alone),),
        ("freeze a process", "freeze in the answer", "long", "stubborn", "cancel", "retry"),
        seed=11,
    ),
    Variant(
        "outcomes are written whatever the status",
        ((recording, "is_held", _lease_alone),),
        ("kill, and the call comes late", "let the call come late", "long", "quick", "pause"),
        seed=17,
    ),
    Variant(
        "a claim does not raise the lease",
        _in_both("holder", _holder_without_lease, claim, compare_and_set),
    ),
    Variant("a claim reads first and writes without conditions", ((Claiming, "_claim", _claim_in_two_steps),)),
    Variant(
        "a claim ignores the row's times",
        _in_both("may_start", sa.true, candidates, compare_and_set),
        ("insert by hand", "flaky"),
    ),
    Variant(
        "a claim whose answer was lost is forgotten",
        ((Claiming, "_once", _forget_lost_claims), (Toucher, "_release_strays", lambda self, found: None)),
        ("lose the answer",),
    ),
    Variant(
        "nodes rescue without a steady pulse",
        ((Pulse, "may_judge", lambda self, monotonic: True),),
        ("step the clock", "long"),
        seed=29,
    ),
    Variant(
        "a rescue does not ask whether the holder lives",
        ((rescue, "_is_held_by_the_living", lambda before: sa.false()),),
        ("lock a row", "long"),
        seed=86,
    ),
    Variant(
        "the pulse does not see the clock's steps",
        ((Pulse, "beat", _see_gaps_only),),
        ("step the clock", "long"),
        seed=29,
    ),
    Variant(
        "touch goes by the process, not by the claims",
        ((Toucher, "_touch", _touch_by_process),),
        ("cancel", "move", "retry", "long"),
    ),
    Variant(
        "claims in flight count as strays",
        ((Holdings, "strays", _strays_in_flight_too),),
        ("delay the answer",),
    ),
    Variant(
        "a stop gives back what still runs",
        ((Execution, "_run", _end_without_waiting),),
        ("stop a node", "recycle a worker", "stubborn"),
    ),
    Variant(
        "outcomes are dropped while the database is away",
        ((OutcomeWriter, "add", _drop_outcomes(_ADD)),),
        ("database away", "fail the call", "long", "flaky"),
    ),
    Variant("poison runs beside other tasks", ((Claiming, "claim", _stay_among_others),), ("poison", "long")),
    Variant("attempts are not recorded", ((recording, "record_attempts", lambda *args: None),), ("flaky",)),
    Variant("a retry by hand leaves the lease", ((actions, "update_tasks", _without_lease),), ("retry", "long")),
    Variant("no key is full", ((Rooms, "of_key", lambda self, key: UNLIMITED),), (KEYS, "long")),
    Variant("no queue is full", ((Rooms, "of_queue", lambda self: UNLIMITED),), (KEYS, "long")),
    Variant("what runs is not counted", ((Rooms, "_count_running", lambda self: Counter()),), (KEYS, "long")),
    Variant("what starts is not recorded", ((Rooms, "record", lambda self, turn, started: None),), (KEYS, "quick")),
    Variant(
        "a plain claim takes from limited queues",
        ((candidates, "has_limit", lambda queue: sa.false()),),
        (KEYS, "long"),
        seed=14,
    ),
    Variant(
        "a turn looks and takes in two steps", ((Claiming, "_claim_by_turns", _turn_in_two_steps),), (KEYS, "long")
    ),
    Variant(
        "a turn in vain is the last one",
        ((TurnTaking, "took", _never_again_in_vain), (TurnTaking, "may_have_changed", lambda self: None)),
        (KEYS, "long"),
    ),
    Variant(
        "what the code does not know is dead at once",
        ((unknown_handlers, "judge_not_served", dead_at_once),),
        (VERSIONS, "enqueue"),
    ),
    Variant(
        "an argument that is not known is left out",
        ((HandlerCode, "prepare", prepare_leniently(HandlerCode.prepare)),),
        (VERSIONS, "enqueue"),
    ),
    Variant("what runs is expired", ((chore_batches, "expire", _expire_whatever_it_does),), ("long",), seed=85),
)
