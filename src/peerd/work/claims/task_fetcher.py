"""Claiming: as many tasks as there are free places, with pauses that grow while there is nothing to do.

A task that has crashed a process runs alone, so that its neighbours are not killed with it again: it is claimed only
by a process that runs nothing, which then claims nothing else. Such tasks stand in lanes of their own. A process that
finds nothing else to do looks into them. So does, now and then, one that always has something to do, and when one has
waited for long it lets itself run empty for it, if it is its turn (`peerd.store.claim.quarantined`); having done so it
takes one after another, as long as it is its turn. The others go on meanwhile: a crash does not cost the cluster all
its places.

Tasks that have keys, or whose queue is limited, are claimed by turns: see `peerd.work.claims.limited_polling`.

Who has claimed nothing for a moment looks first, by one question that writes nothing, and claims only what it sees. Who
is rung at, and knows of nothing that takes turns, claims at once, and looks if that was in vain: the look would take as
long as the claim. In vain a claim is as cheap, except on SQLite, where it takes the only writer's lock.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from peerd.domain.errors import DatabaseAway
from peerd.domain.task import Task
from peerd.runtime.observability.events import Events, TasksClaimed
from peerd.store.claim.claim import claim, claimed_by_token
from peerd.store.claim.claimer import Claimed, Claimer
from peerd.store.claim.mutex import Line
from peerd.store.claim.quarantined import should_run_empty
from peerd.store.connection.database import DatabaseThreads
from peerd.store.connection.outages import Outages
from peerd.store.limits.limited_claim import Turn, Waits, claim_by_turns, look
from peerd.store.outcomes.recording import Held
from peerd.store.statements.token import new_token
from peerd.work.claims.active_claims import Holdings
from peerd.work.claims.limited_polling import TurnTaking

LOOK_FOR_LONELY_EVERY: Final = 1.0
"""Seconds between two looks for tasks that must run alone."""
FIRST_PAUSE: Final = 0.05
"""Seconds after the first empty look; doubled at each further one."""


class Claiming:
    """The claims of one process.

    Args:
        database: where.
        claimer: who, and which queues.
        holdings: what was won is entered there before anything else can happen.
        outages: what it learns about the database.
        events: how many were claimed.
        poll_every: asked for the seconds between two looks at the most.
        patience: seconds after which the first process runs empty for a task that must run alone.
    """

    def __init__(
        self,
        database: DatabaseThreads,
        claimer: Claimer,
        holdings: Holdings,
        outages: Outages,
        events: Events,
        *,
        poll_every: Callable[[], float],
        patience: float = 10.0,
    ) -> None:
        self._database = database
        self._claimer = claimer
        self._holdings = holdings
        self._outages = outages
        self._events = events
        self._poll_every = poll_every
        self._patience = patience
        self._now = asyncio.get_running_loop().time
        self._line = Line(self._now)
        self._next_lonely_look = 0.0
        self._runs_empty = False
        self._found_lonely = False
        self._ran_alone = False
        self._is_busy = False
        self._empty_looks = 0
        self._turns = TurnTaking(self._now, poll_every)
        self._waits = Waits()
        self._limited: set[str] = set()
        self._has_taken_turns = False
        self._makes_way = False
        self._has_place = True
        self._was_rung = False

    def freed_by(self, ended: Iterable[Task]) -> set[str]:
        """The queues in which a task may start because one has ended that was claimed by turns."""
        if not self._has_taken_turns:
            return set()
        return {task.queue for task in ended if task.limit_key is not None or task.queue in self._limited}

    def may_have_changed(self) -> None:
        """A task that takes turns has ended, and others may start."""
        self._turns.may_have_changed()

    def was_rung(self) -> None:
        """Somebody says that there is work."""
        self._was_rung = not self._database.database.has_one_writer
        self._turns.may_have_changed()

    async def claim(self, wanted: int, running: int, free: int) -> list[Task]:
        """Claim for the free places.

        Args:
            wanted: tasks: for the free places, and as many ahead as will begin at once.
            running: tasks that run.
            free: places; what takes turns is not claimed ahead.
        """
        if self._ran_alone or (self._look_is_due() and (running or self._is_busy)):
            self._runs_empty = await self._is_its_turn()
        if self._runs_empty:
            return [] if running else await self._claim_alone()
        won = await self._claim_next(wanted, free)
        self._is_busy = bool(won.tasks) or won.lost_some
        if won.tasks:
            self._empty_looks = 0
        elif not self._is_busy:
            self._empty_looks += 1
        if not (running or self._is_busy) and (self._found_lonely or self._look_is_due()):
            return await self._claim_alone()
        return won.tasks

    def pause(self) -> float:
        """Seconds until the next look. Spread, so that processes do not look together."""
        if self._runs_empty:
            return max(self._next_lonely_look - self._now(), FIRST_PAUSE)
        if self._is_busy or not self._empty_looks:
            return 0.0
        grown = min(FIRST_PAUSE * 2.0 ** min(self._empty_looks - 1, 16), self._poll_every())
        grown *= random.uniform(0.75, 1.25)
        turn_in = self._turns.pause() if self._has_place else None  # a place that is free again wakes it
        return grown if turn_in is None else min(grown, turn_in)

    async def _claim_next(self, wanted: int, free: int) -> Claimed:
        """Claim what comes first: by turns, or what takes none.

        Where a turn comes first and no place is free for it, nothing is claimed until one is. Who always claims ahead
        would otherwise never have a free one.
        """
        self._has_place = free > 0
        claims_at_once = self._was_rung and not self._waits.by_turns
        self._was_rung = False
        if claims_at_once and (won := await self._claim_plain(wanted)).tasks:
            return won
        may_find_plain = True
        if looks := claims_at_once or self._turns.look_is_due or not self._is_busy:
            may_find_plain = not await self._look() or self._waits.plain
        if looks or self._makes_way:
            self._makes_way = not free and self._turns.next_queue(before_others=True) is not None
            if self._makes_way:
                return Claimed([])
            if by_turns := await self._take_turn(free, before_others=True):
                return Claimed(by_turns)
        won = await self._claim_plain(wanted) if may_find_plain else Claimed([])
        if won.tasks:
            return won
        if not looks:
            await self._look()
        return Claimed(await self._take_turn(free, before_others=False), lost_some=won.lost_some)

    async def _claim_plain(self, wanted: int) -> Claimed:
        """Claim what takes no turns."""
        won = await self._claim(wanted, alone=False)
        if won.tasks:
            self._turns.others_went(-won.tasks[0].priority)
        return won

    async def _look(self) -> bool:
        """Look what waits; return whether the database has told."""
        self._turns.looks()
        try:
            self._waits = await self._database.read(look, self._claimer)
        except DatabaseAway as error:
            self._outages.lost(error)
            return False
        self._turns.saw(self._waits.by_turns)
        self._outages.found()
        return True

    async def _take_turn(self, free: int, *, before_others: bool) -> list[Task]:
        """Take a turn where something waits for one; further ones, as long as they are in vain."""
        while free > 0 and (queue := self._turns.next_queue(before_others=before_others)) is not None:
            turn = await self._claim_by_turns(queue, free, alone=False)
            self._turns.took(queue, free, len(turn.tasks), turn.again_in)
            if turn.tasks:
                return turn.tasks
        return []

    async def _claim_by_turns(self, queue: str, limit: int, *, alone: bool) -> Turn:
        turn = Turn([])

        async def take(token: int) -> Claimed:
            nonlocal turn
            turn = await self._database.run(claim_by_turns, self._claimer, queue, token=token, limit=limit, alone=alone)
            return Claimed(turn.tasks)

        won = (await self._held(take)).tasks
        self._has_taken_turns |= bool(won)
        self._limited |= {queue for task in won if task.limit_key is None}
        return Turn(won, turn.again_in)

    def _look_is_due(self) -> bool:
        """Whether it is time to look again for tasks that must run alone."""
        return self._now() >= self._next_lonely_look

    async def _is_its_turn(self) -> bool:
        """Whether this process, which has other things to do, is to run empty for a task that must run alone."""
        self._look_later()
        self._ran_alone = False
        try:
            return await self._database.read(should_run_empty, self._claimer, self._patience)
        except DatabaseAway as error:
            self._outages.lost(error)
            return self._runs_empty

    async def _claim_alone(self) -> list[Task]:
        """Claim a task that must run alone, for a process that runs nothing."""
        self._look_later()
        self._runs_empty = False
        if self._turns.look_is_due:
            await self._look()
        lonely = (await self._claim(1, alone=True)).tasks if self._waits.crashed else []
        for queue in [] if lonely else {**self._waits.crashed_by_turns, **self._waits.crashed}:
            if lonely := (await self._claim_by_turns(queue, 1, alone=True)).tasks:
                break
        self._found_lonely = self._ran_alone = bool(lonely)
        self._empty_looks = 0 if lonely else self._empty_looks
        return lonely

    def _look_later(self) -> None:
        self._next_lonely_look = self._now() + LOOK_FOR_LONELY_EVERY * random.uniform(0.5, 1.5)

    async def _claim(self, limit: int, *, alone: bool) -> Claimed:
        """One claim of what takes no turns."""
        return await self._held(
            lambda token: self._database.run_each(
                claim, self._claimer, token=token, limit=limit, alone=alone, line=self._line
            )
        )

    async def _held(self, ask: Callable[[int], Awaitable[Claimed]]) -> Claimed:
        """Ask for a claim, and hold what it wins."""
        token = new_token()
        began = self._now()
        self._holdings.begin_claim(token)
        won = Claimed([])
        try:
            won = await self._once(token, ask)
        finally:
            self._holdings.end_claim(token, [Held(task.id, task.lease) for task in won.tasks])
        if won.tasks:
            spent = (self._now() - began) * 1000
            self._events.emit(TasksClaimed(count=len(won.tasks), milliseconds=spent))
        return won

    async def _once(self, token: int, ask: Callable[[int], Awaitable[Claimed]]) -> Claimed:
        """One claim; when its answer is lost, read back by its token what it won before anything else is tried."""
        try:
            won = await ask(token)
        except DatabaseAway as error:
            self._outages.lost(error)
            found = await self._outages.outlast(lambda: self._database.read(claimed_by_token, self._claimer, token))
            return Claimed(found)
        self._outages.found()
        return won
