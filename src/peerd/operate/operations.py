"""One colour: each question to the database is written once, and asked in two ways.

A method of a `OperationGroup` checks its arguments where it is called and returns an `Query`: a plain function over a
connection. `operation` makes of it a method that carries the ask out: at once below a `Client` (`BlockingMode`), and
awaitably below ``client.aio`` (`Awaiting`). The types say so too: the same method of ``Tasks[BlockingMode]`` returns a
value, and of ``Tasks[AsyncMode]`` a coroutine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import update_wrapper, wraps
from threading import Lock
from types import MethodType
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, overload

from sqlalchemy.engine import Connection

from peerd.domain.ring import Ring
from peerd.doorbell.notifier import Notifier
from peerd.runtime.concurrency.fork_hooks import register_fork_hooks
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.schema.migrate import require_current_schema
from peerd.store.statements.autocommit import AutocommitConnection

P = ParamSpec("P")
T = TypeVar("T")


QueryKind = Literal["read", "run", "run_statement"]
"""In which of the ways of a `Database` something is done."""


class Query(Generic[T]):
    """What to do on a connection, in which way, and who is rung at when it is committed."""

    __slots__ = ("function", "kind", "rings")

    def __init__(self, function: Callable[[Any], T], kind: QueryKind) -> None:
        self.function = function
        self.kind = kind
        self.rings: tuple[Ring, ...] = ()

    def then_ring(self, *rings: Ring) -> Self:
        """After it, ring these."""
        self.rings = rings
        return self


def read_query(function: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> Query[T]:
    """An ask that changes nothing."""
    return Query(lambda connection: function(connection, *args, **kwargs), "read")


def write_query(function: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> Query[T]:
    """An ask that is carried out in a transaction of its own, whole or not at all."""
    return Query(lambda connection: function(connection, *args, **kwargs), "run")


def autocommit_query(
    function: Callable[Concatenate[AutocommitConnection, P], T], /, *args: P.args, **kwargs: P.kwargs
) -> Query[T]:
    """An ask that is one statement, which commits by itself."""
    return Query(lambda connection: function(connection, *args, **kwargs), "run_statement")


class BlockingMode:
    """Asks are carried out at once.

    The first one sees that the tables are as this version needs them: `SchemaMissing` is a clearer answer than the
    driver's. An embedded database gets its tables there.
    """

    def __init__(self, database: Database, notifier: Notifier) -> None:
        self.database = database
        self.notifier = notifier
        self.is_schema_current = False
        self.reset_after_fork()
        register_fork_hooks(self)

    def execute(self, query: Query[T]) -> T:
        """Do it, and return its answer."""
        if not self.is_schema_current:
            self.require_schema()
        execute_on: Callable[[Callable[..., T]], T] = getattr(self.database, query.kind)
        answer = execute_on(query.function)
        if query.rings:
            self.notifier.ring(*query.rings)
        return answer

    def before_fork(self) -> None:
        """Called in a process that forks: its threads stay in it."""

    def reset_after_fork(self) -> None:
        """Have a lock of one's own; called in a process that was forked, too."""
        self._lock = Lock()

    def require_schema(self) -> None:
        """See, once, that the tables are there."""
        with self._lock:
            if not self.is_schema_current:
                require_current_schema(self.database)
                self.is_schema_current = True


class AsyncMode:
    """Asks are carried out on a few threads; the event loop goes on meanwhile."""

    def __init__(self, blocking: BlockingMode, threads: int) -> None:
        self._blocking = blocking
        self._threads = DatabaseThreads(blocking.database, threads)
        self.notifier = blocking.notifier

    async def execute(self, query: Query[T]) -> T:
        """Do it, and return its answer."""
        if not self._blocking.is_schema_current:
            await asyncio.to_thread(self._blocking.require_schema)
        execute_on: Callable[[Callable[..., T]], Awaitable[T]] = getattr(self._threads, query.kind)
        answer = await execute_on(query.function)
        if query.rings:
            self.notifier.ring(*query.rings)
        return answer

    def close(self) -> None:
        """Let the threads end."""
        self._threads.close()


Mode = TypeVar("Mode", bound=BlockingMode | AsyncMode)


class OperationGroup(Generic[Mode]):
    """Operations that belong together; how they are carried out is given."""

    def __init__(self, mode: Mode) -> None:
        self._mode = mode


class Operation(Generic[P, T]):
    """A method of a group; see `operation`."""

    def __init__(self, method: Callable[Concatenate[Any, P], Query[T]]) -> None:
        @wraps(method)
        def execute(group: OperationGroup[Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
            query = method(group, *args, **kwargs)
            query.function.__name__ = method.__name__  # by which tests and errors know it
            return group._mode.execute(query)  # noqa: SLF001 - the other half of it

        self._execute = execute
        update_wrapper(self, method)  # type: ignore[arg-type]  # it is called through __get__ only

    @overload
    def __get__(self, group: None, owner: type) -> Self: ...
    @overload
    def __get__(self, group: OperationGroup[BlockingMode], owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, group: OperationGroup[AsyncMode], owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, group: OperationGroup[Any] | None, owner: type) -> Any:
        """The method of one group."""
        if group is None:
            return self
        return MethodType(self._execute, group)


def operation(method: Callable[Concatenate[Any, P], Query[T]]) -> Operation[P, T]:
    """Make a method that returns an `Query` one that returns, or awaitably returns, the answer."""
    return Operation(method)
