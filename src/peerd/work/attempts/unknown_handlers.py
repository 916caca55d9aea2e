"""Tasks that this process cannot run, because it has other code than whoever enqueued them.

What is given back arrives again on the first active node, whose own processes hear of it first. If they do not know it,
they would claim it again and again, before the processes that do: so whoever has given a task back makes way.
"""

from __future__ import annotations

import random
from typing import Final

from peerd.domain.known_handlers import NotServed, judge_not_served
from peerd.domain.outcome import Deferred, Outcome
from peerd.domain.task import Task
from peerd.store.connection.database import DatabaseThreads
from peerd.store.connection.outages import Outages
from peerd.store.nodes.known_handlers import look_round

MAKES_WAY_FOR: Final = 0.2
"""Seconds at the most that a process which has given a task back waits when it is rung at. By chance, because where
two versions each lack something, processes of both do it."""


class NotServedHere:
    """Asks the table what the other processes of the cluster know.

    Args:
        database: where.
        outages: what is learned about it.
        unknown_after: seconds after which a task is dead that no process has known.
    """

    def __init__(self, database: DatabaseThreads, outages: Outages, unknown_after: float) -> None:
        self._database = database
        self._outages = outages
        self._unknown_after = unknown_after
        self._has_given_back = False

    async def ask_others(self, task: Task, error: NotServed) -> Outcome:
        """What becomes of a task that this process holds and cannot run."""
        sight = await self._outages.outlast(lambda: self._database.read(look_round, task, self._unknown_after))
        outcome = judge_not_served(task, error, sight, self._unknown_after)
        self._has_given_back |= isinstance(outcome, Deferred)
        return outcome

    def makes_way_for(self) -> float:
        """Seconds that other processes have, which may know what this one does not, before it looks for work."""
        return random.uniform(0.0, MAKES_WAY_FOR) if self._has_given_back else 0.0
