"""One colour: each question to the database is written once, and asked in two ways.

A method of a `Group` checks its arguments where it is called and returns an `Ask`: a plain function over a connection.
`operation` makes of it a method that carries the ask out: at once below a `Client` (`Blocking`), and awaitably below
``client.aio`` (`Awaiting`). The types say so too: the same method of ``Tasks[Blocking]`` returns a value, and of
``Tasks[Awaiting]`` a coroutine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial, update_wrapper
from threading import Lock
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from sqlalchemy.engine import Connection

from peerd.bell.ringer import Ringer
from peerd.domain.ring import Ring
from peerd.store.database import Database, DatabaseThreads
from peerd.store.migrate import require_newest

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask(Generic[T]):
    """What to do on a connection; `reads` says that it changes nothing, `rings` who is woken when it is committed."""

    on: Callable[[Connection], T]
    reads: bool
    rings: tuple[Ring, ...] = ()

    def and_ring(self, *rings: Ring) -> Ask[T]:
        """The same, after which these are rung."""
        return replace(self, rings=rings)


def reading(function: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> Ask[T]:
    """An ask that changes nothing."""
    return Ask(lambda connection: function(connection, *args, **kwargs), reads=True)


def writing(function: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> Ask[T]:
    """An ask that is carried out in a transaction of its own, whole or not at all."""
    return Ask(lambda connection: function(connection, *args, **kwargs), reads=False)


class Blocking:
    """Asks are carried out at once.

    The first one sees that the tables are as this version needs them: `SchemaMissing` is a clearer answer than the
    driver's. An embedded database gets its tables there.
    """

    def __init__(self, database: Database, ringer: Ringer) -> None:
        self.database = database
        self.ringer = ringer
        self.schema_is_newest = False
        self._lock = Lock()

    def carry_out(self, ask: Ask[T]) -> T:
        """Do it, and return its answer."""
        if not self.schema_is_newest:
            self.require_schema()
        if ask.reads:
            return self.database.read(ask.on)
        answer = self.database.run(ask.on)
        self.ringer.ring(*ask.rings)
        return answer

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
        if ask.reads:
            return await self._threads.read(ask.on)
        answer = await self._threads.run(ask.on)
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
        self._plan = plan
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
        return update_wrapper(partial(self._carry_out, group), self._plan)

    def _carry_out(self, group: Group[Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
        ask = self._plan(group, *args, **kwargs)
        ask.on.__name__ = self._plan.__name__  # by which tests and errors know it
        return group._colour.carry_out(ask)  # noqa: SLF001 - the other half of it


def operation(plan: Callable[Concatenate[Any, P], Ask[T]]) -> Operation[P, T]:
    """Make a method that returns an `Ask` one that returns, or awaitably returns, the answer."""
    return Operation(plan)
