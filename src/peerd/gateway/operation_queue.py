"""Gathers the operations of all connections into batches, has them executed one after the other, and delivers results.

The open batch goes to `GroupCommitter` when no other one is being executed, together with the attempts of the clients
that may get a job. After a large batch it waits a little for the clients that were just answered: otherwise these would
be one batch and all others the next one, each half as large as it could be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from peerd.gateway.batches import Answer, Batch, GroupCommitter, OperationFailed
from peerd.gateway.operations import Holder, JobOperation
from peerd.gateway.outbox import Outbox
from peerd.store.connection.database import Database

LARGE: Final = 8
"""Answers of a batch after which the next one waits."""
MAX_WAIT: Final = 0.25
"""Part of the time which a batch took, for which the next one waits at the most."""


class Attempts(Protocol):
    """What joins each batch just before it is executed: attempts of waiting clients to reserve jobs."""

    @property
    def has_attempts(self) -> bool:
        """Whether `add_attempts` would add one."""

    def add_attempts(self, batch: Batch) -> None:
        """Add the attempts that are to be made to a batch that is complete, while no other one is being executed."""

    def finish_batch(self) -> None:
        """Note that the results of a batch have been delivered."""


class OperationQueue:
    """The operations of one process. Everything here runs on the event loop.

    Args:
        database: not closed with it.
        holder: the process.
        on_failures: called with the errors of a batch, one of each kind.
    """

    def __init__(self, database: Database, holder: Holder, on_failures: Callable[[Sequence[Exception]], None]) -> None:
        self.outbox = Outbox()
        self.open_batch = Batch()
        """The batch that the next operations join."""
        self._on_failures = on_failures
        self._loop = asyncio.get_running_loop()
        self._committer = GroupCommitter(database, holder, self._deliver)
        self._is_executing = False
        self._is_flush_scheduled = False
        self._began_at = 0.0
        self._awaited = 0
        """Commands for which the next batch waits: as many as were answered, less those that have come since."""
        self._end_of_wait: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def start(self, attempts: Attempts) -> None:
        """Begin to execute operations, and these attempts."""
        self._attempts = attempts
        self._committer.start()

    async def finish(self) -> None:
        """Wait until all operations so far have been executed."""
        await self._idle.wait()

    def close(self) -> None:
        """End; operations that were not executed are dropped."""
        self._committer.close()

    def submit(self, client: object, operation: JobOperation, answer: Answer) -> None:
        """Have an operation executed; ``answer`` is called with its result. Those of one client keep their order."""
        self.open_batch.add(client, operation, answer)
        self.request_batch(1)

    def submit_last(self, operation: JobOperation, answer: Answer) -> None:
        """Have an operation executed after all others so far, whoever has submitted them."""
        self.open_batch.add_last(operation, answer)
        self.request_batch()

    def request_batch(self, commands: int = 0) -> None:
        """Have the open batch executed, even if it has nothing but attempts.

        Args:
            commands: of clients that have come, for which it may have waited.
        """
        self._idle.clear()
        self._awaited -= commands
        if self._awaited <= 0 and not (self._is_executing or self._is_flush_scheduled):
            self._schedule_flush()

    def _schedule_flush(self) -> None:
        if self._end_of_wait is not None:
            self._end_of_wait.cancel()
            self._end_of_wait = None
        self._is_flush_scheduled = True
        self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_scheduled = False
        self._began_at = self._loop.time()
        batch, self.open_batch = self.open_batch, Batch()
        self._attempts.add_attempts(batch)
        if batch:
            self._is_executing = True
            self._committer.submit(batch)
        else:
            self._idle.set()

    def _deliver(self, batch: Batch, results: Sequence[Sequence[Any]]) -> None:
        """Answer the operations of a batch that was executed, and begin the next one."""
        took = self._loop.time() - self._began_at
        answered = sum(len(of_run) for of_run in results)
        self._awaited = answered if answered >= LARGE else 0
        try:
            self._answer(batch, results)
        finally:
            self._is_executing = False
            self._continue(took)

    def _answer(self, batch: Batch, results: Sequence[Sequence[Any]]) -> None:
        failures: dict[type[Exception], Exception] = {}
        for run, of_run in zip(batch.runs, results, strict=True):
            for answer, result in zip(run.answers, of_run, strict=True):
                if isinstance(result, OperationFailed):
                    failures[type(result.error)] = result.error
                answer(result)
        if failures:
            self._on_failures(tuple(failures.values()))
        self.outbox.flush()
        self._attempts.finish_batch()

    def _continue(self, took: float) -> None:
        """Wait for those that were answered, or begin the next batch."""
        if self._awaited > 0:
            self._end_of_wait = self._loop.call_later(took * MAX_WAIT, self._stop_waiting)
        elif self.open_batch or self._attempts.has_attempts:
            self._schedule_flush()
        else:
            self._idle.set()

    def _stop_waiting(self) -> None:
        """Begin the next batch without those that have not come in time."""
        self._end_of_wait = None
        self._awaited = 0
        self._schedule_flush()
