"""Outcomes that are awaited one by one, written as a worker's process writes them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from peerd.domain.outcome import Outcome
from peerd.store.connection.database import DatabaseThreads
from peerd.store.connection.outages import Outages
from peerd.store.outcomes.recording import Held
from peerd.work.attempts.outcome_writer import OutcomeWriter


class InlineOutcomes:
    """An `OutcomeWriter` that answers who waits.

    Args:
        threads: the database.
        process_id: who holds.
        outages: what it learns about the database.
    """

    def __init__(self, threads: DatabaseThreads, process_id: int, outages: Outages) -> None:
        self._writer = OutcomeWriter[_Awaited](
            threads, process_id, outages, running=lambda: 0, written=_answer, unwritable=_refuse
        )

    async def write(self, held: Held, outcome: Outcome) -> bool:
        """Write it.

        Returns:
            False when it was refused, because the task is not held any more.

        Raises:
            Exception: the database refuses these very values; the task is held still.
        """
        awaited = _Awaited(held, outcome)
        self._writer.add(awaited)
        return await awaited.answer


class _Awaited:
    """An outcome that somebody waits for."""

    def __init__(self, held: Held, outcome: Outcome) -> None:
        self.held = held
        self.outcome = outcome
        self.answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()


def _answer(batch: Sequence[_Awaited], refused: AbstractSet[Held]) -> None:
    for awaited in batch:
        if not awaited.answer.done():
            awaited.answer.set_result(awaited.held not in refused)


def _refuse(awaited: _Awaited, error: Exception) -> None:
    if not awaited.answer.done():
        awaited.answer.set_exception(error)
