"""Outcomes that are awaited one by one, written as a worker's process writes them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from peerd.domain.outcome import Outcome
from peerd.store.connection.database import DatabaseThreads
from peerd.store.connection.outages import OutageTracker
from peerd.store.outcomes.recording import ClaimId
from peerd.work.attempts.outcome_writer import OutcomeWriter


class InlineOutcomes:
    """An `OutcomeWriter` of a process whose writes are awaited."""

    def __init__(self, threads: DatabaseThreads, process_id: int, outages: OutageTracker) -> None:
        self._writer = OutcomeWriter[_AwaitedOutcome](
            threads, process_id, outages, running=lambda: 0, written=_resolve, unwritable=_reject
        )

    async def write(self, held: ClaimId, outcome: Outcome) -> bool:
        """Write it.

        Returns:
            False when it was refused, because the task is not held any more.

        Raises:
            Exception: the database refuses the values; the task is still held.
        """
        awaited = _AwaitedOutcome(held, outcome)
        self._writer.add(awaited)
        return await awaited.accepted


class _AwaitedOutcome:
    def __init__(self, held: ClaimId, outcome: Outcome) -> None:
        self.held = held
        self.outcome = outcome
        self.accepted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()


def _resolve(batch: Sequence[_AwaitedOutcome], refused: AbstractSet[ClaimId]) -> None:
    for awaited in batch:
        if not awaited.accepted.done():
            awaited.accepted.set_result(awaited.held not in refused)


def _reject(awaited: _AwaitedOutcome, error: Exception) -> None:
    if not awaited.accepted.done():
        awaited.accepted.set_exception(error)
