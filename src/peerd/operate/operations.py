"""Each operation on the database is written once, and offered blocking and awaitable.

A method of an `OperationGroup` checks its arguments and returns a `Query`, which is a function of a connection.
`operation` turns it into a method that executes the query: blocking below a `Client`, awaitable below ``client.aio``.
The types follow: a method of ``TaskOperations[BlockingMode]`` returns a value, one of ``TaskOperations[AsyncMode]`` a
coroutine. That is what the descriptor is for; without it each operation and its docstring would be written twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext
from functools import update_wrapper
from threading import Lock
from types import MethodType
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, overload

from peerd.domain.ring import Ring
from peerd.doorbell.notifier import Notifier
from peerd.runtime.concurrency.fork_hooks import register_fork_hooks
from peerd.runtime.tracing.enqueue_span import EnqueueSpan
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.schema.migrate import require_current_schema

P = ParamSpec("P")
T = TypeVar("T")

DatabaseMethod = Literal["read", "run", "run_statement"]
"""Read only; in a transaction of its own; one statement, which commits by itself."""


class Query(Generic[T]):
    """A function of a connection, the `Database` method that executes it, and what is rung after its commit."""

    __slots__ = ("function", "method", "rings", "span")

    def __init__(
        self,
        method: DatabaseMethod,
        function: Callable[Concatenate[Any, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        self.method = method
        self.function: Callable[[Any], T] = lambda connection: function(connection, *args, **kwargs)
        self.rings: tuple[Ring, ...] = ()
        self.span: EnqueueSpan | None = None
        """Ends with the execution."""

    def traced_by(self, span: EnqueueSpan | None) -> Self:
        """End this span with the execution."""
        self.span = span
        return self

    def then_ring(self, *rings: Ring) -> Self:
        """Ring these after the commit."""
        self.rings = rings
        return self


class BlockingMode:
    """Executes queries in the calling thread.

    The first one checks that the tables are as this version needs them, because `SchemaMissing` is clearer than the
    error of a driver; an embedded database gets its tables there.
    """

    def __init__(self, database: Database, notifier: Notifier) -> None:
        self.blocking = self
        self.database = database
        self.notifier = notifier
        self.is_schema_current = False
        self.reset_after_fork()
        register_fork_hooks(self)

    def execute(self, query: Query[T]) -> T:
        """Execute a query, ring, and return its result."""
        if not self.is_schema_current:
            self.require_schema()
        execute: Callable[[Callable[..., T]], T] = getattr(self.database, query.method)
        with nullcontext() if query.span is None else query.span.ending():
            result = execute(query.function)
        if query.rings:
            self.notifier.ring(*query.rings)
        return result

    def require_schema(self) -> None:
        """Check the tables, once."""
        with self._lock:
            if not self.is_schema_current:
                require_current_schema(self.database)
                self.is_schema_current = True

    def before_fork(self) -> None:
        """Nothing is open that a forked process must not have."""

    def reset_after_fork(self) -> None:
        """Create a lock, since another thread of the parent may have held the inherited one."""
        self._lock = Lock()


class AsyncMode:
    """Executes queries on a few threads, so that the event loop is not blocked."""

    def __init__(self, blocking: BlockingMode) -> None:
        self.blocking = blocking
        self.notifier = blocking.notifier
        self._threads = DatabaseThreads(blocking.database)
        self.close = self._threads.close

    async def execute(self, query: Query[T]) -> T:
        """Execute a query, ring, and return its result."""
        if not self.blocking.is_schema_current:
            await asyncio.to_thread(self.blocking.require_schema)
        execute: Callable[[Callable[..., T]], Awaitable[T]] = getattr(self._threads, query.method)
        with nullcontext() if query.span is None else query.span.ending():
            result = await execute(query.function)
        if query.rings:
            self.notifier.ring(*query.rings)
        return result


Mode = TypeVar("Mode", bound=BlockingMode | AsyncMode)


class OperationGroup(Generic[Mode]):
    """Operations on one subject, executed in one mode."""

    def __init__(self, mode: Mode) -> None:
        self._mode = mode


class Operation(Generic[P, T]):
    """A method of a group; see `operation`."""

    def __init__(self, method: Callable[Concatenate[Any, P], Query[T]]) -> None:
        def execute(group: OperationGroup[Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
            query = method(group, *args, **kwargs)
            query.function.__name__ = method.__name__  # shown by errors and `FaultyDatabase`
            return group._mode.execute(query)  # noqa: SLF001 - of the same group

        self._execute = update_wrapper(execute, method)
        update_wrapper(self, method)  # type: ignore[arg-type]  # it is called through __get__ only

    @overload
    def __get__(self, group: None, owner: type) -> Self: ...
    @overload
    def __get__(self, group: OperationGroup[BlockingMode], owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, group: OperationGroup[AsyncMode], owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, group: OperationGroup[Any] | None, owner: type) -> Any:
        """The method of one group."""
        return self if group is None else MethodType(self._execute, group)


operation = Operation
"""Decorator: turns a method that returns a `Query` into one that executes it, blocking or awaitable."""
