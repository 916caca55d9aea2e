"""Each operation on the database is written once, and offered blocking and awaitable.

A method of an `OperationGroup` checks its arguments and returns a `Query`, which is a function of a connection.
`operation` turns it into a method that executes the query: blocking below a `Client`, awaitable below ``client.aio``.
The types follow: a method of ``TaskOperations[BlockingMode]`` returns a value, one of ``TaskOperations[AsyncMode]`` a
coroutine. That is what the descriptor is for; without it each operation and its docstring would be written twice.

Here is also where rights hold: whatever calls an operation, a route, a command or a program, its actor needs the right
of the operation, and what it changes is written into the audit log (`peerd.operate.audited`).
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from functools import cached_property, update_wrapper
from threading import Lock
from types import MethodType
from typing import Any, ClassVar, Concatenate, Generic, Literal, ParamSpec, Protocol, Self, TypeVar, overload

from peerd.domain.access import ALL_RIGHTS, Actor, ActorKind, Right
from peerd.domain.errors import NotPermitted, PeerdError
from peerd.domain.masking import Masker
from peerd.domain.ring import Ring
from peerd.doorbell.notifier import Notifier
from peerd.operate.actors import python_actor
from peerd.operate.audited import AuditTarget, OperationCall, named_arguments
from peerd.runtime.concurrency.fork_hooks import register_fork_hooks
from peerd.store.access.states import State
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.schema.migrate import require_current_schema

P = ParamSpec("P")
T = TypeVar("T")

DatabaseMethod = Literal["read", "run", "run_statement"]
"""Read only; in a transaction of its own; one statement, which commits by itself."""


class Query(Generic[T]):
    """A function of a connection, the `Database` method that executes it, and what is rung after its commit.

    ``target`` is what it acts on, for the audit log; ``failure`` is raised after it.
    """

    __slots__ = ("failure", "function", "method", "rings", "target")

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
        self.target: AuditTarget | None = None
        self.failure: PeerdError | None = None

    def then_ring(self, *rings: Ring) -> Self:
        """Ring these after the commit."""
        self.rings = rings
        return self

    def acting_on(
        self, kind: str, name: str | int, read: Callable[..., State | None] | None = None, *args: object
    ) -> Self:
        """Name what it acts on.

        Args:
            kind: such as ``task``.
            name: its name or id.
            read: a function of a connection and ``args`` that reads its state.
            args: see ``read``.
        """
        state = None if read is None else lambda connection: read(connection, *args)
        self.target = AuditTarget(kind, str(name), state)
        return self

    def making(self, kind: str, describe: Callable[[T], tuple[str, State]]) -> Self:
        """Name what it makes, which its result describes: by a name or id, and its state."""
        self.target = AuditTarget(kind, describe=describe)
        return self

    def then_raise(self, failure: PeerdError) -> Self:
        """Raise this after the commit."""
        self.failure = failure
        return self


class SchemaCheck:
    """Checks once that the tables are as this version needs them.

    `SchemaMissing` is clearer than the error of a driver; an embedded database gets its tables here.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.is_done = False
        self.reset_after_fork()
        register_fork_hooks(self)

    def require(self) -> None:
        """Check the tables, unless that was done."""
        with self._lock:
            if not self.is_done:
                require_current_schema(self._database)
                self.is_done = True

    def before_fork(self) -> None:
        """Nothing is open that a forked process must not have."""

    def reset_after_fork(self) -> None:
        """Create a lock, since another thread of the parent may have held the inherited one."""
        self._lock = Lock()


class BlockingMode:
    """Executes queries in the calling thread, for an actor.

    Args:
        database: where they are executed.
        notifier: rings after a commit.
        masker: of what other actors than programs read.
    """

    def __init__(self, database: Database, notifier: Notifier, masker: Masker | None = None) -> None:
        self.blocking = self
        self.database = database
        self.notifier = notifier
        self.masker = masker or Masker()
        self.schema = SchemaCheck(database)
        self.actor = python_actor()
        self.is_unrestricted = True
        """Whether the actor is a program with all rights, whose enqueuing nothing is to slow down."""

    def acting_as(self, actor: Actor) -> BlockingMode:
        """The same for another actor."""
        acting = copy.copy(self)
        acting.blocking = acting
        acting.actor = actor
        is_program = actor.kind is ActorKind.PYTHON
        acting.is_unrestricted = is_program and actor.rights == ALL_RIGHTS and actor.queues is None
        return acting

    def execute(self, query: Query[T]) -> T:
        """Execute a query, ring, and return its result."""
        if not self.schema.is_done:
            self.schema.require()
        execute: Callable[[Callable[..., T]], T] = getattr(self.database, query.method)
        result = execute(query.function)
        if query.rings:
            self.notifier.ring(*query.rings)
        if query.failure is not None:
            raise query.failure
        return result


class AsyncMode:
    """Executes queries on a few threads, so that the event loop is not blocked."""

    def __init__(self, blocking: BlockingMode) -> None:
        self.blocking = blocking
        self._threads = DatabaseThreads(blocking.database)
        self.close = self._threads.close

    @property
    def notifier(self) -> Notifier:
        """Rings after a commit."""
        return self.blocking.notifier

    @property
    def actor(self) -> Actor:
        """For which queries are executed."""
        return self.blocking.actor

    @property
    def masker(self) -> Masker:
        """Masks what other actors than programs read."""
        return self.blocking.masker

    @property
    def is_unrestricted(self) -> bool:
        """Whether the actor is a program with all rights."""
        return self.blocking.is_unrestricted

    def acting_as(self, actor: Actor) -> AsyncMode:
        """The same for another actor, on the same threads."""
        acting = copy.copy(self)
        acting.blocking = self.blocking.acting_as(actor)
        return acting

    async def execute(self, query: Query[T]) -> T:
        """Execute a query, ring, and return its result."""
        if not self.blocking.schema.is_done:
            await asyncio.to_thread(self.blocking.schema.require)
        execute: Callable[[Callable[..., T]], Awaitable[T]] = getattr(self._threads, query.method)
        result = await execute(query.function)
        if query.rings:
            self.notifier.ring(*query.rings)
        if query.failure is not None:
            raise query.failure
        return result


Mode = TypeVar("Mode", bound=BlockingMode | AsyncMode)


class OperationGroup(Generic[Mode]):
    """Operations on one subject, executed in one mode. ``subject`` is the client's attribute; empty: the client."""

    subject: ClassVar[str] = ""

    def __init__(self, mode: Mode) -> None:
        self._mode = mode

    @property
    def mode(self) -> Mode:
        """Executes queries, for code of peerd that has its own."""
        return self._mode

    @property
    def _actor(self) -> Actor:
        return self._mode.actor

    @property
    def _masker(self) -> Masker | None:
        """What masks the results, if anything does: a program needs the values to work with them."""
        masker = self._mode.masker
        return masker if masker and self._actor.kind is not ActorKind.PYTHON else None

    def _require_queue(self, operation: str, *queues: str) -> None:
        """Check that the actor is not restricted to other queues; raises `NotPermitted`."""
        for queue in queues:
            if not self._actor.covers(queue):
                raise NotPermitted(self._actor.name, operation, f"the queue {queue} is none of its queues")


class Operation(Generic[P, T]):
    """A method of a group; see `operation`."""

    def __init__(
        self,
        method: Callable[Concatenate[Any, P], Query[T]],
        *,
        needs: Right | None = None,
        in_queues: bool = False,
    ) -> None:
        self._method = method
        self.needs = needs
        self.in_queues = in_queues

        def execute(group: OperationGroup[Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
            mode = group._mode  # noqa: SLF001 - of the same group
            if needs is Right.ENQUEUE and mode.is_unrestricted:
                query = method(group, *args, **kwargs)
                query.function.__name__ = method.__name__  # shown by errors and `FaultyDatabase`
                return mode.execute(query)
            return mode.execute(self._guarded_query(group, args, kwargs))

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

    def _guarded_query(self, group: OperationGroup[Any], args: Any, kwargs: Any) -> Query[Any]:
        """The query of a permitted call, which writes its audit entry if it changes something; or of a refusal."""
        mode, method = group._mode, self._method  # noqa: SLF001 - as above
        name = f"{group.subject}.{method.__name__}" if group.subject else method.__name__
        call = OperationCall(name, mode.actor, mode.masker, named_arguments(self._signature, args, kwargs))
        try:
            if self.needs is not None:
                call.require(self.needs, in_queues=self.in_queues)
            query: Query[Any] = method(group, *args, **kwargs)
            if self.needs is None:
                right = Right.VIEW if query.method == "read" else Right.OPERATE
                call.require(right, in_queues=self.in_queues)
        except NotPermitted as error:
            query = Query("run", call.refused(str(error))).then_raise(error)
        else:
            if query.method != "read":
                assert query.method == "run", f"{name}: what is audited needs a transaction"
                query.function = call.audited(query.function, query.target)
        query.function.__name__ = method.__name__
        return query

    @cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self._method)


class OperationDecorator(Protocol):
    """What `operation` returns if it is called with the operation's right."""

    def __call__(self, method: Callable[Concatenate[Any, P], Query[T]], /) -> Operation[P, T]:
        """Turn a method into an operation."""


@overload
def operation(method: Callable[Concatenate[Any, P], Query[T]], /) -> Operation[P, T]: ...
@overload
def operation(*, needs: Right | None = None, in_queues: bool = False) -> OperationDecorator: ...


def operation(method: Any = None, /, *, needs: Right | None = None, in_queues: bool = False) -> Any:
    """Turn a method that returns a `Query` into one that executes it, blocking or awaitable.

    Args:
        method: the method.
        needs: the right that it needs; by default ``view`` for what only reads, ``operate`` for the rest.
        in_queues: it keeps to the queues of an actor that is restricted to some; else such an actor must not call it.
    """
    if method is not None:
        return Operation(method)
    return lambda decorated: Operation(decorated, needs=needs, in_queues=in_queues)
