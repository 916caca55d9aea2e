"""peerd with one of its guarantees taken out, for real nodes: what the checker must catch.

Nodes load `tests.faults.broken:work` in the place of `tests.faults.jobs:work`; $PEERD_BREAK names what breaks in the
processes of that worker, and there alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.task import Task
from peerd.store.finish import Held
from peerd.store.tables import tasks
from peerd.work import claiming, outcomes, places, touching
from tests.faults.jobs import work

__all__ = ["VARIABLE", "VARIANTS", "work"]

VARIABLE: Final = "PEERD_BREAK"


def completes_without_its_lease() -> None:
    """A holder that does not hear that it lost its claim writes success by the task's id alone."""

    def complete(connection: Connection, process_id: int, results: Mapping[Held, str | None]) -> set[Held]:
        for held, result in results.items():
            values = {"status": "done", "result": result}
            connection.execute(sa.update(tasks).where(tasks.c.id == held.id).values(**values))
        return set()

    vars(outcomes)[complete.__name__] = complete
    places.Places.lose = lambda self, held, noticed_at: None  # type: ignore[method-assign]


def touches_nothing() -> None:
    """A living process does not say that it holds its tasks, and so they are taken from it."""
    touching.Toucher._touch = lambda self: None  # type: ignore[method-assign]


def forgets_outcomes() -> None:
    """A success is counted as written before it is, and it never is."""

    def add(self: outcomes.OutcomeWriter[outcomes.Ended], ended: outcomes.Ended) -> None:
        self._written([ended], set())

    outcomes.OutcomeWriter.add = add  # type: ignore[assignment, method-assign]


def runs_the_crashed_beside_others() -> None:
    """A task that has crashed a process is claimed by one that is not empty."""

    async def claim(self: claiming.Claiming, wanted: int, running: int, free: int) -> list[Task]:
        return (await self._claim(1, alone=True)).tasks or (await self._claim(wanted, alone=False)).tasks

    claiming.Claiming.claim = claim  # type: ignore[method-assign]


VARIANTS: Final[dict[str, Callable[[], None]]] = {
    "completes without its lease": completes_without_its_lease,
    "touches nothing": touches_nothing,
    "forgets outcomes": forgets_outcomes,
    "runs the crashed beside others": runs_the_crashed_beside_others,
}

if os.environ.get(VARIABLE):
    VARIANTS[os.environ[VARIABLE]]()
