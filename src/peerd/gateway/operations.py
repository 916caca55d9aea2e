"""What the gateway asks of the database, as values: each operation, and how those of one kind are executed together.

The order of the operations of one client is kept. Operations of several clients that are in one batch are concurrent,
so those of one kind may be executed together. All of a batch is one transaction; replies are sent after its commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.task import NewTask
from peerd.store import enqueue
from peerd.store.jobs import holding, reserving
from peerd.store.jobs.holding import Bury, Release
from peerd.store.jobs.reserving import ReservedJob
from peerd.store.outcomes import ClaimId
from peerd.store.take.claimer import Claimer

Results = Sequence[Any]
T = TypeVar("T")


class Holder(msgspec.Struct, frozen=True):
    """The process that holds the reservations, and the TTR of jobs that have none, in seconds."""

    node_id: int
    incarnation: str
    process_id: int
    default_ttr: int

    def claimer(self, tubes: tuple[str, ...]) -> Claimer:
        """The process as a claimer of these queues."""
        return Claimer(node_id=self.node_id, incarnation=self.incarnation, process_id=self.process_id, queues=tubes)


class JobOperation(msgspec.Struct, frozen=True):
    """What is executed in a batch. ``durable``: its commit waits until it would survive a power failure."""

    durable: ClassVar[bool] = True


class Put(JobOperation, frozen=True):
    """Insert a job; the result is `Enqueued`."""

    job: NewTask


class Demand:
    """How many jobs a client wants of all its attempts in a batch together.

    >>> demand = Demand(2)
    >>> demand.fill(["a", "b", "c"]), demand.fill(["c"])
    (['a', 'b'], [])
    """

    __slots__ = ("left", "wanted")

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.restart()

    def restart(self) -> None:
        """Begin again: the batch is executed once more."""
        self.left = self.wanted

    def fill(self, found: list[T]) -> list[T]:
        """The first of what was found, as much as is still wanted."""
        first = found[: self.left]
        self.left -= len(first)
        return first


class Reserve(JobOperation, frozen=True):
    """Reserve the first jobs of some tubes; the result is a list of them. A lost reservation is a released one."""

    durable: ClassVar[bool] = False
    tubes: tuple[str, ...]
    demand: Demand


class DeleteHeld(JobOperation, frozen=True):
    """Delete a job whose reservation the process holds, or keep it as done; the result is whether it did."""

    claim: ClaimId
    keep: bool


class ReleaseHeld(JobOperation, frozen=True):
    """Release a reservation; the result is whether it was held."""

    release: Release


class BuryHeld(JobOperation, frozen=True):
    """Bury a reserved job; the result is whether it was held."""

    bury: Bury


class TouchHeld(JobOperation, frozen=True):
    """Renew the deadline of a reservation; the result is whether it is held."""

    durable: ClassVar[bool] = False
    claim: ClaimId


class HeldCall(JobOperation, frozen=True):
    """A function of the store about a reservation, called with the process and the claim; the result is its result."""

    claim: ClaimId
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class ReserveJob(JobOperation, frozen=True):
    """Reserve a job by its id; the result is the job, or None."""

    durable: ClassVar[bool] = False
    job_id: int


class StoreCall(JobOperation, frozen=True):
    """Any function of the store; the result is what it returns."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


class StoreQuery(StoreCall, frozen=True):
    """A function of the store that only reads."""

    durable: ClassVar[bool] = False


def _put(connection: Connection, _: Holder, given: Sequence[Put]) -> Results:
    return enqueue.put(connection, [operation.job for operation in given])


def _reserve(connection: Connection, holder: Holder, given: Sequence[Reserve]) -> Results:
    """Reserves that follow one another and want the same tubes are one claim: the earliest client gets the best job."""
    results: list[list[ReservedJob]] = []
    position = 0
    while position < len(given):
        tubes = given[position].tubes
        together = [given[position]]
        while position + len(together) < len(given) and given[position + len(together)].tubes == tubes:
            together.append(given[position + len(together)])
        limit = sum(operation.demand.left for operation in together)
        found = reserving.reserve(connection, holder.claimer(tubes), limit, holder.default_ttr) if limit else []
        for operation in together:
            first = operation.demand.fill(found)
            results.append(first)
            found = found[len(first) :]
        position += len(together)
    return results


def _delete(connection: Connection, holder: Holder, given: Sequence[DeleteHeld]) -> Results:
    keep = frozenset(operation.claim for operation in given if operation.keep)
    held = [operation.claim for operation in given]
    deleted = holding.delete_held(connection, holder.process_id, held, keep=keep)
    return [claim in deleted for claim in held]


def _release(connection: Connection, holder: Holder, given: Sequence[ReleaseHeld]) -> Results:
    released = holding.release(connection, holder.process_id, [operation.release for operation in given])
    return [operation.release.claim in released for operation in given]


def _bury(connection: Connection, holder: Holder, given: Sequence[BuryHeld]) -> Results:
    buried = holding.bury(connection, holder.process_id, [operation.bury for operation in given])
    return [operation.bury.claim in buried for operation in given]


def _touch(connection: Connection, holder: Holder, given: Sequence[TouchHeld]) -> Results:
    touched = holding.touch_reservations(connection, holder.process_id, [operation.claim for operation in given])
    return [operation.claim in touched for operation in given]


def _held_call(connection: Connection, holder: Holder, given: Sequence[HeldCall]) -> Results:
    return [one.function(connection, holder.process_id, one.claim, *one.arguments) for one in given]


def _reserve_job(connection: Connection, holder: Holder, given: Sequence[ReserveJob]) -> Results:
    claimer = holder.claimer(())
    return [reserving.reserve_by_id(connection, claimer, operation.job_id, holder.default_ttr) for operation in given]


def _call(connection: Connection, _: Holder, given: Sequence[StoreCall]) -> Results:
    return [operation.function(connection, *operation.arguments) for operation in given]


EXECUTIONS: Final[Mapping[type[JobOperation], Callable[[Connection, Holder, Sequence[Any]], Results]]] = {
    Put: _put,
    Reserve: _reserve,
    DeleteHeld: _delete,
    ReleaseHeld: _release,
    BuryHeld: _bury,
    TouchHeld: _touch,
    HeldCall: _held_call,
    ReserveJob: _reserve_job,
    StoreCall: _call,
    StoreQuery: _call,
}
"""How the operations of each kind are executed; results come in the order of the operations."""
