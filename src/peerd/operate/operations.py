"""One colour: each question to the database is written once, and asked in two ways.

A method of a `Group` checks its arguments where it is called and returns an `Ask`: a plain function over a connection.
`operation` makes of it a method that carries the ask out: at once below a `Client` (`Blocking`), and awaitably below
``client.aio`` (`Awaiting`). The types say so too: the same method of ``Tasks[Blocking]`` returns a value, and of
``Tasks[Awaiting]`` a coroutine.
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
from peerd.doorbell.notifier import Ringer
from peerd.runtime.concurrency.fork_hooks import look_after
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.schema.migrate import require_newest
from peerd.store.statements.autocommit import Direct

P = ParamSpec("P")
T = TypeVar("T")


Kind = Literal["read", "run", "run_alone"]
"""In which of the ways of a `Database` something is done."""


class Ask(Generic[T]):
    """What to do on a connection, in which way, and who is rung at when it is committed."""

    __slots__ = ("kind", "on", "rings")

    def __init__(self, on: Callable[[Any], T], kind: Kind) -> None:
        self.on = on
        self.kind = kind
        self.rings: tuple[Ring, ...] = ()

    def and_ring(self, *rings: Ring) -> Self:
        """After it, ring these."""
        self.rings = rings
        return self


def reading(function: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> Ask[T]:
    """An ask that changes nothing."""
    return Ask(lambda connection: function(connection, *args, **kwargs), "read")


def writing(function: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> Ask[T]:
    """An ask that is carried out in a transaction of its own, whole or not at all."""
    return Ask(lambda connection: function(connection, *args, **kwargs), "run")


def writing_alone(function: Callable[Concatenate[Direct, P], T], /, *args: P.args, **kwargs: P.kwargs) -> Ask[T]:
    """An ask that is one statement, which commits by itself."""
    return Ask(lambda connection: function(connection, *args, **kwargs), "run_alone")


class Blocking:
    """Asks are carried out at once.

    The first one sees that the tables are as this version needs them: `SchemaMissing` is a clearer answer than the
    driver's. An embedded database gets its tables there.
    """

    def __init__(self, database: Database, ringer: Ringer) -> None:
        self.database = database
        self.ringer = ringer
        self.schema_is_newest = False
        self.begin_anew()
        look_after(self)

    def carry_out(self, ask: Ask[T]) -> T:
        """Do it, and return its answer."""
        if not self.schema_is_newest:
            self.require_schema()
        do: Callable[[Callable[..., T]], T] = getattr(self.database, ask.kind)
        answer = do(ask.on)
        if ask.rings:
            self.ringer.ring(*ask.rings)
        return answer

    def before_fork(self) -> None:
        """Called in a process that forks: its threads stay in it."""

    def begin_anew(self) -> None:
        """Have a lock of one's own; called in a process that was forked, too."""
        self._lock = Lock()

    def require_schema(self) -> None:
        """See, once, that the tables are there."""
        with self._lock:
            if not self.schema_is_newest:
                require_newest(self.database)
                self.schema_is_newest = True


class Awaiting:
    """Asks are carried out on a few threads; the event loop goes on meanwhile."""

    def __init__(self, blocking: Blocking, threads: int) -> None:
        self._blocking = blocking
        self._threads = DatabaseThreads(blocking.database, threads)
        self.ringer = blocking.ringer

    async def carry_out(self, ask: Ask[T]) -> T:
        """Do it, and return its answer."""
        if not self._blocking.schema_is_newest:
            await asyncio.to_thread(self._blocking.require_schema)
        do: Callable[[Callable[..., T]], Awaitable[T]] = getattr(self._threads, ask.kind)
        answer = await do(ask.on)
        if ask.rings:
            self.ringer.ring(*ask.rings)
        return answer

    def close(self) -> None:
        """Let the threads end."""
        self._threads.close()


Colour = TypeVar("Colour", bound=Blocking | Awaiting)


class Group(Generic[Colour]):
    """Operations that belong together; how they are carried out is given."""

    def __init__(self, colour: Colour) -> None:
        self._colour = colour


class Operation(Generic[P, T]):
    """A method of a group; see `operation`."""

    def __init__(self, plan: Callable[Concatenate[Any, P], Ask[T]]) -> None:
        @wraps(plan)
        def carry_out(group: Group[Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
            ask = plan(group, *args, **kwargs)
            ask.on.__name__ = plan.__name__  # by which tests and errors know it
            return group._colour.carry_out(ask)  # noqa: SLF001 - the other half of it

        self._carry_out = carry_out
        update_wrapper(self, plan)  # type: ignore[arg-type]  # it is called through __get__ only

    @overload
    def __get__(self, group: None, owner: type) -> Self: ...
    @overload
    def __get__(self, group: Group[Blocking], owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, group: Group[Awaiting], owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, group: Group[Any] | None, owner: type) -> Any:
        """The method of one group."""
        if group is None:
            return self
        return MethodType(self._carry_out, group)


def operation(plan: Callable[Concatenate[Any, P], Ask[T]]) -> Operation[P, T]:
    """Make a method that returns an `Ask` one that returns, or awaitably returns, the answer."""
    return Operation(plan)
