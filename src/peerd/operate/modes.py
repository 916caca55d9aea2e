"""How operations are executed: by the calling thread, or awaited; for an actor, on the database.

`peerd.operate.remote` has the modes of a client of a server.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable, Coroutine
from contextlib import closing, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from peerd.domain.access import ALL_RIGHTS, Actor, ActorKind
from peerd.domain.errors import RowLocked
from peerd.domain.quoting import Masker
from peerd.doorbell.cluster_secret import read_secret
from peerd.doorbell.notifier import Notifier
from peerd.operate.actors import python_actor
from peerd.operate.guard import RefusalLimit
from peerd.operate.queries import Ended, Query, QuerySequence
from peerd.runtime.concurrency import ForkSafeLock, ThreadPool
from peerd.storage.failed_nodes import FailedNodes
from peerd.store.connection.database import Database
from peerd.store.schema.migrate import require_current_schema

if TYPE_CHECKING:
    from peerd.operate.operations import Operation, OperationGroup
    from peerd.storage.client import ContentTransfer

T = TypeVar("T")


class SchemaCheck:
    """Checks once that the tables are as this version needs them.

    `SchemaMissing` is clearer than the error of a driver; an embedded database gets its tables here.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = ForkSafeLock()
        self.is_done = False

    def require(self) -> None:
        """Check the tables, unless that was done."""
        with self._lock:
            if not self.is_done:
                require_current_schema(self._database)
                self.is_done = True


class BlockingMode:
    """Executes queries in the calling thread, for an actor.

    Args:
        database: where they are executed.
        notifier: rings after a commit.
        masker: of what other actors than programs read.
        owns_database: whether `close` closes it.
    """

    threads = 4
    """Threads of ``client.aio``, and as many for what only reads; each has a connection."""
    is_traced = True
    """Whether an enqueue has a span, where the program makes spans."""

    def __init__(
        self, database: Database, notifier: Notifier, masker: Masker | None = None, *, owns_database: bool = False
    ) -> None:
        self.blocking = self
        self.database = database
        self.notifier = notifier
        self.masker = masker or Masker()
        self.owns_database = owns_database
        self.schema = SchemaCheck(database)
        self.refusals = RefusalLimit()
        self.failed_nodes = FailedNodes()
        self.set_actor(python_actor())

    def acting_as(self, actor: Actor) -> BlockingMode:
        """This mode for another actor."""
        acting = copy.copy(self)
        acting.blocking = acting
        acting.set_actor(actor)
        return acting

    def set_actor(self, actor: Actor) -> None:
        """Execute for this actor from now on."""
        self.actor = actor
        is_program = actor.kind is ActorKind.PYTHON
        self.is_unrestricted = is_program and actor.rights == ALL_RIGHTS and actor.queues is None
        """Whether the actor is a program with all rights, whose enqueuing nothing is to slow down."""

    def call(self, operation: Operation[..., T], group: OperationGroup[Any], args: Any, kwargs: Any) -> T:
        """Call an operation of a group."""
        result: T = self.perform(self.prepare(operation, group, args, kwargs))
        return result

    def prepare(self, operation: Operation[..., Any], group: OperationGroup[Any], args: Any, kwargs: Any) -> Any:
        """Check the arguments and the rights of a call; `perform` takes what is returned."""
        return operation.guarded_query(group, args, kwargs)

    def perform(self, prepared: Any) -> Any:
        """Do what was prepared, and return the result of the operation."""
        return self.execute(prepared)

    def execute(self, query: Query[T]) -> T:
        """Execute a query, ring, and return its result; of a sequence one after another."""
        if not self.schema.is_done:
            self.schema.require()
        if isinstance(query, QuerySequence):
            whole: T = self._execute_all(query)
            return whole
        execute: Callable[[Callable[..., T]], T] = getattr(self.database, query.method)
        with nullcontext() if query.span is None else query.span.ending():
            try:
                result = execute(query.function)
            except RowLocked:  # a transaction waits longer
                result = self.database.run(query.function)
        if query.rings:
            self.notifier.ring(*query.rings)
        if query.failure is not None:
            raise query.failure
        return result

    def _execute_all(self, sequence: QuerySequence[T]) -> T:
        with closing(sequence.steps):
            step: Query[Any] | float | Ended[T] = sequence.advance(None)
            while not isinstance(step, Ended):
                if isinstance(step, Query):
                    step = sequence.advance(self.execute(step))
                else:
                    time.sleep(step)
                    step = sequence.advance(None)
            return step.result

    def open_transfer(self) -> ContentTransfer:
        """What puts and gets contents of files for the actor. Raises ImportError without the extra ``storage``."""
        from peerd.storage.client import FilesTransfer  # noqa: PLC0415 - with the extra `storage` only

        self.schema.require()
        secret = read_secret(self.database.url, self.notifier.secret)
        return FilesTransfer(self.database, secret, self.actor, self.failed_nodes)

    def require_database(self, what: str) -> None:
        """Raise `DatabaseRequired` where there is none; ``client.<what>`` needs it."""

    def make_async(self) -> AsyncMode:
        """The mode of ``client.aio``."""
        return AsyncMode(self)

    @property
    def shown_url(self) -> str:
        """Where it connects to, without a password."""
        return self.database.url.render_as_string(hide_password=True)

    def close(self) -> None:
        """Close the notifier, and the database if it is its own."""
        self.notifier.close()
        if self.owns_database:
            self.database.close()


class AsyncMode:
    """Executes in a few threads what a blocking mode does, so that the event loop is not blocked.

    What only reads has threads of its own, since writes may wait for locks of other sessions.
    """

    def __init__(self, blocking: BlockingMode) -> None:
        self.blocking = blocking
        self._threads = ThreadPool(blocking.threads, "peerd-client")
        self._readers = ThreadPool(blocking.threads, "peerd-client-reads")

    def acting_as(self, actor: Actor) -> AsyncMode:
        """The mode of another actor, on the same threads."""
        acting = copy.copy(self)
        acting.blocking = self.blocking.acting_as(actor)
        return acting

    def call(
        self, operation: Operation[..., T], group: OperationGroup[Any], args: Any, kwargs: Any
    ) -> Coroutine[Any, Any, T]:
        """Call an operation of a group; its arguments are checked at once."""
        return self.execute(self.blocking.prepare(operation, group, args, kwargs))

    async def execute(self, prepared: Any) -> Any:
        """Execute a call that was prepared; no thread waits in the pauses of a sequence."""
        if isinstance(prepared, QuerySequence):
            return await self._execute_all(prepared)
        is_read = isinstance(prepared, Query) and prepared.method == "read"
        threads = self._readers if is_read else self._threads
        return await threads.call(partial(self.blocking.perform, prepared))

    async def _execute_all(self, sequence: QuerySequence[T]) -> T:
        with closing(sequence.steps):
            step = sequence.advance(None)
            while not isinstance(step, Ended):
                if isinstance(step, Query):
                    step = sequence.advance(await self.execute(step))
                else:
                    await asyncio.sleep(step)
                    step = sequence.advance(None)
            return step.result

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function in a thread."""
        return await asyncio.to_thread(function)

    def close(self) -> None:
        """Let the threads end after what they run now."""
        self._threads.close()
        self._readers.close()


Mode = TypeVar("Mode", bound=BlockingMode | AsyncMode)
