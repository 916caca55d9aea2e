"""Tasks that this process cannot run, because it has other code than whoever enqueued them.

What is given back arrives again on the first active node, whose own processes hear of it first. If they do not know it,
they would claim it again and again, before the processes that do: so whoever has given a task back makes way.
"""

from __future__ import annotations

import random
from typing import Final

from peerd.domain.known_handlers import UnsupportedTask, decide_unsupported_task
from peerd.domain.outcome import Deferred, Outcome
from peerd.domain.task import Task
from peerd.store.connection.database import DatabaseThreads
from peerd.store.connection.outages import OutageTracker
from peerd.store.nodes.known_handlers import read_known_handlers

MAX_YIELD_DELAY: Final = 0.2
"""Seconds at the most that a process which has given a task back waits when it is rung at. By chance, because where
two versions each lack something, processes of both do it."""


class UnknownHandlerResolver:
    """Asks the table what the other processes of the cluster know.

    Args:
        database: where.
        outages: what is learned about it.
        unknown_after: seconds after which a task is dead that no process has known.
    """

    def __init__(self, database: DatabaseThreads, outages: OutageTracker, unknown_after: float) -> None:
        self._database = database
        self._outages = outages
        self._unknown_after = unknown_after
        self._has_deferred = False

    async def resolve_unknown_handler(self, task: Task, error: UnsupportedTask) -> Outcome:
        """What becomes of a task that this process holds and cannot run."""
        snapshot = await self._outages.retry_while_down(
            lambda: self._database.read(read_known_handlers, task, self._unknown_after)
        )
        outcome = decide_unsupported_task(task, error, snapshot, self._unknown_after)
        self._has_deferred |= isinstance(outcome, Deferred)
        return outcome

    def yield_delay(self) -> float:
        """Seconds that other processes have, which may know what this one does not, before it looks for work."""
        return random.uniform(0.0, MAX_YIELD_DELAY) if self._has_deferred else 0.0
