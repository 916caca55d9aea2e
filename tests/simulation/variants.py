"""peerd, broken on purpose: each variant takes one precaution away. The rules must catch every one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final
from unittest.mock import patch

import msgspec
import sqlalchemy as sa

from peerd.domain.errors import DatabaseAway
from peerd.domain.lifecycle import Event, Status, sources
from peerd.domain.outcome import Released
from peerd.manager.pulse import Pulse
from peerd.store import claim, complete, finish, intervene, sweeps, turns
from peerd.store.claim import Claimed
from peerd.store.clock import now
from peerd.store.intervene import delete_rows
from peerd.store.rows import TASK_COLUMNS, lock_tasks, to_task, update_tasks
from peerd.store.search import status_is
from peerd.store.tables import tasks
from peerd.work.claiming import Claiming
from peerd.work.execute import Because, Execution
from peerd.work.holdings import Holdings
from peerd.work.outcomes import OutcomeWriter
from peerd.work.touching import Toucher


class Variant(msgspec.Struct, frozen=True):
    """A precaution that is taken away: for each place (object, attribute) what stands there instead.

    ``focus`` names the faults, acts and handlers by which it shows soonest.
    """

    name: str
    patches: tuple[tuple[Any, str, Any], ...]
    focus: tuple[str, ...] = ()


@contextmanager
def broken(variant: Variant) -> Iterator[None]:
    """peerd without that precaution."""
    with ExitStack() as stack:
        for where, attribute, instead in variant.patches:
            stack.enter_context(patch.object(where, attribute, instead))
        for made_once in (claim, complete, turns):
            made_once.forget_statements()
            stack.callback(made_once.forget_statements)
        yield


def _touch_by_process(self: Any) -> None:
    mine = sa.update(tasks).where(tasks.c.process_id == self._process_id, status_is(Status.WORKING))
    self._database.run(_execute, mine.values(checked_at=now()))


def _execute(connection: Any, statement: Any) -> None:
    connection.execute(statement)


async def _end_without_waiting(self: Any) -> Any:
    """A stop writes that a task is given back while its handler still runs."""
    running = asyncio.ensure_future(self._steps())
    while not running.done() and self.because is not Because.STOPPING:
        with suppress(asyncio.CancelledError):
            await asyncio.wait([running], timeout=0.1)
    if not running.done():
        return Released("its process was stopped")
    error = running.exception() if not running.cancelled() else asyncio.CancelledError()
    if error is not None:
        return self._judge_end(None) if isinstance(error, asyncio.CancelledError) else self._judge_error(error)
    return self._judge_value(running.result())


async def _claim_in_two_steps(self: Any, limit: int, *, alone: bool) -> Claimed:
    """Read the head, then write by primary key, without the conditions."""
    lanes = (-1, -1 - self._claimer.node_id) if alone else (0, self._claimer.node_id)

    async def ask(token: int) -> Claimed:
        ids = await self._database.read(_head, self._claimer, limit, lanes)
        return await self._database.run(_take, self._claimer, token, ids) if ids else Claimed([])

    return await self._held(ask)  # type: ignore[no-any-return]


def _head(connection: Any, claimer: Any, limit: int, lanes: tuple[int, int]) -> list[int]:
    candidates = claim.candidates(claimer.queues, lanes)
    return list(connection.execute(candidates, claim.who(claimer) | {"limit": limit}).scalars())


def _take(connection: Any, claimer: Any, token: int, ids: list[int]) -> Claimed:
    mine = sa.update(tasks).where(tasks.c.id.in_(ids)).values(claim._holder(claim._defaults(claimer)))
    connection.execute(mine, claim.who(claimer) | {"token": token})
    rows = connection.execute(sa.select(*TASK_COLUMNS).where(tasks.c.id.in_(ids))).mappings()
    return Claimed([to_task(row) for row in rows])


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
            ended.written(False)

    return dropping


async def _stay_among_others(self: Any, free: int, running: int, places: int) -> list[Any]:
    """Tasks that have crashed a process are claimed like all others, into any free place."""
    lonely = await self._claim(1, alone=True)
    claimed: list[Any] = lonely.tasks or (await self._claim(free, alone=False)).tasks
    return claimed


def _strays_in_flight_too(self: Any, found: Any) -> list[Any]:
    return [held for held in found if held not in self._held]


def _without_lease(connection: Any, ids: Any, *conditions: Any, **values: Any) -> int:
    values.pop("lease", None)
    return update_tasks(connection, ids, *conditions, **values)


def _holder_without_lease(defaults: Any) -> dict[str, Any]:
    return {name: value for name, value in _HOLDER(defaults).items() if name != "lease"}


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


_HOLDER: Final = claim._holder
_ADD: Final = OutcomeWriter.add


def _lease_alone(lease: Any) -> tuple[Any, ...]:
    return (tasks.c.lease == lease,)


def _status_alone(lease: Any) -> tuple[Any, ...]:
    return (status_is(*sources(Event.COMPLETE)),)


VARIANTS: Final = (
    Variant(
        "outcomes are written without the lease",
        ((finish, "is_held", _status_alone),),
        ("freeze a process", "freeze in the answer", "long", "stubborn", "cancel", "retry"),
    ),
    Variant(
        "outcomes are written whatever the status",
        ((finish, "is_held", _lease_alone),),
        ("kill, and the call comes late", "let the call come late", "long", "quick", "pause"),
    ),
    Variant("a claim does not raise the lease", ((claim, "_holder", _holder_without_lease),)),
    Variant("a claim reads first and writes without conditions", ((Claiming, "_claim", _claim_in_two_steps),)),
    Variant("a claim ignores the row's times", ((claim, "_may_start", sa.true),), ("insert by hand", "flaky")),
    Variant(
        "a claim whose answer was lost is forgotten",
        ((Claiming, "_once", _forget_lost_claims), (Toucher, "_release_strays", lambda self, found: None)),
        ("lose the answer",),
    ),
    Variant(
        "nodes rescue without a steady pulse",
        ((Pulse, "may_judge", lambda self, monotonic: True),),
        ("step the clock", "long"),
    ),
    Variant("the pulse does not see the clock's steps", ((Pulse, "beat", _see_gaps_only),), ("step the clock", "long")),
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
    Variant("attempts are not recorded", ((finish, "record_attempts", lambda *args: None),), ("flaky",)),
    Variant("a retry by hand leaves the lease", ((intervene, "update_tasks", _without_lease),), ("retry", "long")),
    Variant("what runs is expired", ((sweeps, "expire", _expire_whatever_it_does),), ("long",)),
)
