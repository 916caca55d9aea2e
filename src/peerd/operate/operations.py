"""Each operation on the database is written once, and offered blocking and awaitable.

A method of an `OperationGroup` checks its arguments and returns a `Query`, which is a function of a connection.
`operation` turns it into a method that executes the query: blocking below a `Client`, awaitable below ``client.aio``.
The types follow: a method of ``TaskOperations[BlockingMode]`` returns a value, one of ``TaskOperations[AsyncMode]`` a
coroutine. That is what the descriptor is for; without it each operation and its docstring would be written twice.

Here is also where rights hold: a route, a command or a program calls an operation for an actor, which needs the right
of the operation, and what it changes is written into the audit log (`peerd.operate.guard`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import cached_property, update_wrapper
from types import MethodType
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from peerd.domain.access import Actor, ActorKind, Right
from peerd.domain.errors import NotPermitted
from peerd.domain.quoting import Masker
from peerd.operate.guard import OperationCall, named_arguments
from peerd.operate.modes import AsyncMode, BlockingMode, Mode
from peerd.operate.queries import Query, QuerySequence, Steps
from peerd.operate.rest import Rest

__all__ = [
    "AsyncMode",
    "BlockingMode",
    "Mode",
    "Operation",
    "OperationGroup",
    "Query",
    "QuerySequence",
    "Steps",
    "operation",
]

P = ParamSpec("P")
T = TypeVar("T")


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
        actor: Actor = self._mode.blocking.actor
        return actor

    @property
    def _masker(self) -> Masker | None:
        """What masks the results, if anything does: a program needs the values to work with them."""
        masker: Masker = self._mode.blocking.masker
        return masker if masker and self._actor.kind is not ActorKind.PYTHON else None

    def _require_queue(self, operation: str, *queues: str) -> None:
        """Check that the actor is not restricted to other queues; raises `NotPermitted`."""
        for queue in queues:
            if not self._actor.covers(queue):
                raise NotPermitted(self._actor.name, operation, f"the queue {queue} is none of its queues")


class GroupMethod(Generic[P, T]):
    """A method of a group: it blocks below a client, and is awaitable below ``client.aio``.

    Args:
        method: documents it.
        execute: is called with the group and the arguments.
    """

    def __init__(self, method: Callable[..., Any], execute: Callable[..., Any]) -> None:
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


class Operation(GroupMethod[P, T]):
    """An operation of a group; see `operation`."""

    __wrapped__: Callable[..., Query[T]]

    def __init__(
        self,
        method: Callable[Concatenate[Any, P], Query[T]],
        *,
        needs: Right | None = None,
        in_queues: bool = False,
        audited: bool = True,
        rest: Rest | None = None,
    ) -> None:
        self.needs = needs
        self.in_queues = in_queues
        self.audited = audited
        self.rest = rest

        def execute(group: OperationGroup[Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
            return group._mode.call(self, group, args, kwargs)  # noqa: SLF001 - of the same group

        super().__init__(method, execute)

    def query(self, group: OperationGroup[Any], /, *args: P.args, **kwargs: P.kwargs) -> Query[T]:
        """Check the arguments, and return the query."""
        return self.__wrapped__(group, *args, **kwargs).named(self.__wrapped__.__name__)

    def guarded_query(self, group: OperationGroup[Any], args: Any, kwargs: Any) -> Query[Any]:
        """The query of a permitted call, which writes its audit entry if it changes something; or of a refusal.

        Raises:
            NotPermitted: the call is refused, and so often that no more entries are written.
        """
        mode = group.mode.blocking
        if self.needs is Right.ENQUEUE and mode.is_unrestricted:
            return self.query(group, *args, **kwargs)
        own_name = self.__wrapped__.__name__
        name = f"{group.subject}.{own_name}" if group.subject else own_name
        arguments = named_arguments(self._signature, args, kwargs)
        call = OperationCall(name, mode.actor, mode.masker, arguments, mode.refusals)
        query = call.guarded(
            lambda: self.__wrapped__(group, *args, **kwargs),
            self.needs,
            in_queues=self.in_queues,
            audited=self.audited,
        )
        return query.named(own_name)

    @cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.__wrapped__)


class OperationDecorator(Protocol):
    """What `operation` returns if it is called with the operation's right."""

    def __call__(self, method: Callable[Concatenate[Any, P], Query[T]], /) -> Operation[P, T]:
        """Turn a method into an operation."""


@overload
def operation(method: Callable[Concatenate[Any, P], Query[T]], /) -> Operation[P, T]: ...
@overload
def operation(
    *, needs: Right | None = None, in_queues: bool = False, audited: bool = True, rest: Rest | None = None
) -> OperationDecorator: ...


def operation(
    method: Any = None,
    /,
    *,
    needs: Right | None = None,
    in_queues: bool = False,
    audited: bool = True,
    rest: Rest | None = None,
) -> Any:
    """Turn a method that returns a `Query` into one that executes it, blocking or awaitable.

    Args:
        method: the method.
        needs: the right that it needs; by default ``view`` for what only reads, ``operate`` for the rest.
        in_queues: it keeps to the queues of an actor that is restricted to some; else such an actor must not call it.
        audited: it writes an entry of the audit log if it changes something.
        rest: its address in the REST API, beside ``POST /operations/NAME``, which each operation has.
    """
    if method is not None:
        return Operation(method)
    return lambda decorated: Operation(decorated, needs=needs, in_queues=in_queues, audited=audited, rest=rest)
