"""What an operation does to the database: a query, or a sequence of queries with pauses between them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Concatenate, Generic, Literal, NamedTuple, ParamSpec, Self, TypeVar

from sqlalchemy.engine import Connection

from peerd.domain.errors import PeerdError
from peerd.domain.ring import Ring
from peerd.runtime.enqueue_span import EnqueueSpan
from peerd.store.audit import State

P = ParamSpec("P")
T = TypeVar("T")

DatabaseMethod = Literal["read", "run", "run_short"]
"""`read` only reads; `run` is a transaction of its own; the statements of `run_short` commit by themselves."""
Audit = Callable[[Callable[[Any], Any], "AuditTarget | None"], Callable[[Any], Any]]
"""Makes of a function of a connection, and its target, one that writes an entry of the audit log too."""


class AuditTarget(NamedTuple):
    """What an operation acts on.

    Attributes:
        kind: such as ``task``.
        name: its name or id; None: the result has it.
        read: reads its state; None: the result is its state afterwards.
        describe: the name and the state in the operation's result.
    """

    kind: str
    name: str | None = None
    read: Callable[[Connection], State | None] | None = None
    describe: Callable[[Any], tuple[str, State]] | None = None


class Query(Generic[T]):
    """A function of a connection, the `Database` method that executes it, and what is rung after its commit.

    ``target`` is what it acts on, for the audit log; ``failure`` is raised after it.
    """

    __slots__ = ("failure", "function", "method", "rings", "span", "target")

    def __init__(
        self,
        method: DatabaseMethod | Literal["sequence"],
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
        self.span: EnqueueSpan | None = None
        """Ends with the execution."""

    def then_ring(self, *rings: Ring) -> Self:
        """Ring these after the commit."""
        self.rings = rings
        return self

    def traced_by(self, span: EnqueueSpan | None) -> Self:
        """End this span with the execution."""
        self.span = span
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

    def audited_by(self, audit: Audit) -> Self:
        """Write an entry of the audit log in its transaction."""
        assert self.method == "run", "what is audited needs a transaction"
        self.function = audit(self.function, self.target)
        return self

    def named(self, name: str) -> Self:
        """Name the function, which errors and `FaultyDatabase` show."""
        self.function.__name__ = name
        return self


Steps = Generator["Query[Any] | float", Any, T]
"""Yields queries and gets their results, yields pauses in seconds, and returns the result of the whole."""


class Ended(Generic[T]):
    """The end of a sequence, and its result."""

    def __init__(self, result: T) -> None:
        self.result = result


class QuerySequence(Query[T]):
    """Several queries with pauses between them, such as a request and the reads of its answer.

    Args:
        steps: the queries and pauses.
        waits: seconds that the pauses take together, at the most; a client of a server waits so much longer.
    """

    __slots__ = ("audit", "steps", "waits")

    def __init__(self, steps: Steps[T], *, waits: float = 0.0) -> None:
        super().__init__("sequence", _is_sequence)
        self.steps = steps
        self.waits = waits
        self.audit: Audit | None = None

    def audited_by(self, audit: Audit) -> Self:
        """Write an entry of the audit log in the transaction of the first step that writes."""
        self.audit = audit
        return self

    def advance(self, result: object) -> Query[Any] | float | Ended[T]:
        """The next query or pause after the result of the one before (None: there was none), or the end."""
        try:
            step = self.steps.send(result)
        except StopIteration as end:
            return Ended(end.value)
        if isinstance(step, Query):
            if self.audit is not None and step.method == "run":
                step.target = step.target or self.target
                step.audited_by(self.audit)
                self.audit = None
            step.named(self.function.__name__)
        return step


def _is_sequence(_: object) -> Any:
    """Stands for the function of a query; `QuerySequence.steps` has those of its queries."""
    raise AssertionError("a sequence is not executed as a whole")
