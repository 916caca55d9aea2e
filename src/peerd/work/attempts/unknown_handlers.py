"""Tasks that this process cannot run, because the code that enqueued them is newer or older.

A released task is claimed again by whichever process sees it first. Processes that do not know its handler would claim
it again and again before those that do, so a process that has released such a task delays its next claims a little.
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
"""Seconds at the most that such a process waits after a ring. Random, because where two versions each lack a handler
of the other, processes of both wait."""


class UnknownHandlerResolver:
    """Decides by the handlers that the other processes of the cluster know.

    Args:
        database: threads of the process's database.
        outages: learns whether the database answers.
        unknown_after: seconds after which a task is dead whose handler no process has known.
    """

    def __init__(self, database: DatabaseThreads, outages: OutageTracker, unknown_after: float) -> None:
        self._database = database
        self._outages = outages
        self._unknown_after = unknown_after
        self._has_deferred = False

    async def resolve_unknown_handler(self, task: Task, error: UnsupportedTask) -> Outcome:
        """The outcome of a task that this process holds and cannot run."""
        snapshot = await self._outages.retry_while_down(
            lambda: self._database.read(read_known_handlers, task, self._unknown_after)
        )
        outcome = decide_unsupported_task(task, error, snapshot, self._unknown_after)
        self._has_deferred |= isinstance(outcome, Deferred)
        return outcome

    def yield_delay(self) -> float:
        """Seconds that this process leaves to others before it claims after a ring."""
        return random.uniform(0.0, MAX_YIELD_DELAY) if self._has_deferred else 0.0
