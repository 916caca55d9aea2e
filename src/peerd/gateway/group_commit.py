"""Group commit: the operations of all connections that wait while a transaction runs are the next transaction.

Under load a commit, which waits for the disk, is shared by all connections; an idle server commits each operation at
once. Batches are executed one after the other, and their results are delivered.

The open batch goes to `GroupCommitter` when no other one is being executed, together with the attempts of the clients
that may get a job. After a large batch it waits a little for the clients that were just answered: otherwise these would
be one batch and all others the next one, each half as large as it could be.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Final, Protocol

from msgspec import Struct
from sqlalchemy.engine import Connection

from peerd.domain.errors import DatabaseUnavailable, RowLocked
from peerd.gateway.operations import EXECUTIONS, Holder, JobOperation, Put, Reserve
from peerd.store.connection.database import Database
from peerd.store.enqueue import enqueue_one, is_one_statement

MOST_LOCKED: Final = 3
"""Operations of a batch that may wait for a locked row, a second each; after them the others are not tried."""
JOIN_TIMEOUT: Final = 5.0
"""Seconds that the thread may take to finish its last batch."""

FEW: Final = 8
"""Operations of a batch that the event loop may execute itself; of a larger one its commit is shared anyway."""
QUICK: Final = 0.005
"""Seconds that a batch may keep the event loop waiting before the thread executes the batches for a while."""
REST: Final = 4.0
"""How many times as long as a slow batch took: the event loop waits for a slow disk a fifth of its time at the most."""

Callback = Callable[[Any], None]
LARGE: Final = 8
"""Operations of a batch after which the next one waits."""
MAX_WAIT: Final = 0.25
"""The next batch waits at the most for this part of the time that the one before took."""


class OperationFailed:
    """The result of an operation that was not executed, or whose reply was lost."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


Written = bool | OperationFailed
"""The result of an operation that says whether it has found its row."""


class Run(Struct, eq=False):
    """Operations of one kind, which are executed together."""

    kind: type[JobOperation]
    operations: list[JobOperation] = []
    callbacks: list[Callback] = []

    def add(self, operation: JobOperation, callback: Callback) -> None:
        """Add an operation of this kind; ``callback`` is called with its result."""
        self.operations.append(operation)
        self.callbacks.append(callback)

    def restart_demands(self) -> None:
        """Forget what an execution that was rolled back has given to reserves."""
        for operation in self.operations:
            assert isinstance(operation, Reserve)
            operation.demand.restart()


class Batch:
    """Operations of one transaction, gathered into runs.

    An operation joins the last run of its kind, unless a later run has an operation of the same client.

    >>> from peerd.gateway.operations import StoreCall, StoreQuery
    >>> batch = Batch()
    >>> for client, kind in (("a", StoreQuery), ("b", StoreQuery), ("a", StoreCall), ("b", StoreCall)):
    ...     batch.add(client, kind(len), print)
    >>> [(run.kind.__name__, len(run.operations)) for run in batch.runs]
    [('StoreQuery', 2), ('StoreCall', 2)]
    """

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self._last_of_client: dict[object, int] = {}
        self._last_of_kind: dict[type[JobOperation], int] = {}

    def __bool__(self) -> bool:
        return bool(self.runs)

    @property
    def is_durable(self) -> bool:
        """Whether its commit must survive a power failure."""
        return any(run.kind.durable for run in self.runs)

    def only_operation(self) -> JobOperation | None:
        """The operation, if there is only one."""
        return self.runs[0].operations[0] if len(self.runs) == len(self.runs[0].operations) == 1 else None

    def add(self, client: object, operation: JobOperation, callback: Callback) -> None:
        """Add an operation; ``callback`` is called with its result."""
        self.run_after(client, type(operation)).add(operation, callback)

    def run_after(self, client: object, kind: type[JobOperation]) -> Run:
        """The run for operations of a kind that are executed after those of a client so far, and before its next."""
        place = self._last_of_kind.get(kind, -1)
        if place < self._last_of_client.get(client, 0):
            place = len(self.runs)
            self.runs.append(Run(kind))
            self._last_of_kind[kind] = place
        self._last_of_client[client] = place
        return self.runs[place]

    def add_last(self, operation: JobOperation, callback: Callback) -> None:
        """Add an operation that is executed after all others so far, and before those that are added by this later."""
        if not self.runs or self.runs[-1].kind is not type(operation):
            self.runs.append(Run(type(operation)))
        self.runs[-1].add(operation, callback)

    def drop_empty_runs(self) -> None:
        """Forget runs that have got no operation. Nothing is added after this."""
        self.runs = [run for run in self.runs if run.operations]


class GroupCommitter:
    """Executes batches, most of them on a thread of its own.

    Args:
        database: not closed with it.
        holder: the process.
        on_done: called on the event loop with each batch and the results of its runs.
    """

    def __init__(
        self, database: Database, holder: Holder, on_done: Callable[[Batch, Sequence[Sequence[Any]]], None]
    ) -> None:
        self._database = database
        self._holder = holder
        self._on_done = on_done
        self._loop = asyncio.get_running_loop()
        self._disk_is_slow_until = 0.0
        self._batches: SimpleQueue[Batch | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="peerd-commits", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, batch: Batch) -> None:
        """Have a batch executed; call it on the event loop.

        On SQLite a small batch is executed at once, if no other writer is in the way: to wake the thread, and the loop
        after it, would take as long as the statements.
        """
        results = self._execute_at_once(batch) if self._may_execute_at_once(batch) else None
        if results is None:
            self._batches.put(batch)
        else:
            self._on_done(batch, results)

    def _may_execute_at_once(self, batch: Batch) -> bool:
        small = sum(len(run.operations) for run in batch.runs) <= FEW
        return small and self._database.is_single_writer and self._loop.time() >= self._disk_is_slow_until

    def _execute_at_once(self, batch: Batch) -> Sequence[Sequence[Any]] | None:
        """The results of a batch; None if the thread must execute it."""
        began = self._loop.time()
        try:
            return self._database.run_group(self._execute_runs, batch.runs, durable=batch.is_durable, waits=False)
        except Exception:  # noqa: BLE001 - the thread executes it again, and reports what is wrong
            return None
        finally:
            now = self._loop.time()
            if now - began > QUICK:
                self._disk_is_slow_until = now + REST * (now - began)

    def close(self) -> None:
        """End the thread after the batches that were submitted."""
        self._batches.put(None)
        self._thread.join(JOIN_TIMEOUT)

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            try:
                self._loop.call_soon_threadsafe(self._on_done, batch, self._execute(batch))
            except RuntimeError:  # the loop is closed
                return
            del batch  # its jobs take no memory while the thread waits

    def _execute(self, batch: Batch) -> Sequence[Sequence[Any]]:
        try:
            return self._execute_together(batch)
        except RowLocked:
            return self._execute_each(batch)
        except DatabaseUnavailable as error:  # no single operation has caused it
            return [[OperationFailed(error)] * len(run.operations) for run in batch.runs]
        except Exception:  # noqa: BLE001 - one operation must not fail those of other clients
            return self._execute_each(batch)

    def _execute_each(self, batch: Batch) -> Sequence[Sequence[Any]]:
        """Execute each operation in a transaction of its own: one of them cannot be executed."""
        locked: list[OperationFailed] = []
        results: list[list[Any]] = []
        for run in batch.runs:
            results.append([])
            for one in run.operations:
                result = locked[-1] if len(locked) == MOST_LOCKED else self._execute_alone(run.kind, one)
                results[-1].append(result)
                if isinstance(result, OperationFailed) and isinstance(result.error, RowLocked):
                    locked = [*locked, result][:MOST_LOCKED]
        return results

    def _execute_together(self, batch: Batch) -> Sequence[Sequence[Any]]:
        """Execute a batch in a transaction; a single put that is one statement commits by itself, in one round trip."""
        only = batch.only_operation()
        if isinstance(only, Put) and is_one_statement(only.job) and not self._database.is_single_writer:
            return [[self._database.run_short(enqueue_one, only.job)]]
        return self._database.run_group(self._execute_runs, batch.runs, durable=batch.is_durable)

    def _execute_alone(self, kind: type[JobOperation], operation: JobOperation) -> Any:
        try:
            [[result]] = self._database.run_group(self._execute_runs, [Run(kind, [operation])], durable=kind.durable)
        except Exception as error:  # noqa: BLE001 - it is the result of the operation
            return OperationFailed(error)
        return result

    def _execute_runs(self, connection: Connection, runs: Sequence[Run]) -> list[Sequence[Any]]:
        for run in runs:
            if run.kind is Reserve:
                run.restart_demands()
        return [EXECUTIONS[run.kind](connection, self._holder, run.operations) for run in runs]


# ---------------------------------------------------------------- the queue of operations


class Outbox:
    """The connections of one process that have replies to send.

    >>> async def send_two() -> list[str]:
    ...     sent: list[str] = []
    ...     outbox = Outbox()
    ...     outbox.add(lambda: sent.append("at once"))
    ...     outbox.flush()
    ...     outbox.add(lambda: sent.append("at the next turn"))
    ...     await asyncio.sleep(0)
    ...     return sent
    >>> asyncio.run(send_two())
    ['at once', 'at the next turn']
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._senders: list[Callable[[], None]] = []

    def add(self, send: Callable[[], None]) -> None:
        """Have a function called that sends the replies of a connection."""
        if not self._senders:
            self._loop.call_soon(self.flush)
        self._senders.append(send)

    def flush(self) -> None:
        """Call the functions so far."""
        senders, self._senders = self._senders, []
        for send in senders:
            send()


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

    def submit(self, client: object, operation: JobOperation, callback: Callback) -> None:
        """Have an operation executed; ``callback`` is called with its result. Those of one client keep their order."""
        self.open_batch.add(client, operation, callback)
        self.request_batch(1)

    def submit_last(self, operation: JobOperation, callback: Callback) -> None:
        """Have an operation executed after all others so far, of all clients."""
        self.open_batch.add_last(operation, callback)
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
            self._call_back(batch, results)
        finally:
            self._is_executing = False
            self._continue(took)

    def _call_back(self, batch: Batch, results: Sequence[Sequence[Any]]) -> None:
        failures: dict[type[Exception], Exception] = {}
        for run, of_run in zip(batch.runs, results, strict=True):
            for callback, result in zip(run.callbacks, of_run, strict=True):
                if isinstance(result, OperationFailed):
                    failures[type(result.error)] = result.error
                callback(result)
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
