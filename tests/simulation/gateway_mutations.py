"""The queue server, broken on purpose: what replaces its parts in the variants of `tests.simulation.mutations`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from msgspec.structs import replace
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.gateway.batches import OperationFailed
from peerd.gateway.clients import QueueClient, Reservation
from peerd.gateway.engine import Engine
from peerd.gateway.operations import DeleteHeld
from peerd.gateway.reservation_ends import ReservationEnds
from peerd.store.maintenance import rescue
from peerd.store.outcomes.recording import ClaimId
from peerd.store.schema.tables import tasks
from peerd.store.tasks.conditions import status_is


def ignore(*_: Any, **__: Any) -> None:
    """For a precaution that is left out."""


async def never_again(*_: Any) -> None:
    await asyncio.get_running_loop().create_future()


def half_the_time(self: Any, job: Any, now: float) -> None:
    _RESERVATION(self, job, now)
    self.deadline = now + job.ttr / 2


def delete_whoever_holds(self: Any, client: QueueClient, job_id: int, answer: Any) -> None:
    """Replaces `Engine.delete`: a reservation of any client of the process is deleted."""
    for holder in self._clients:
        held = holder.reservations.pop(job_id, None)
        if held is not None:
            self._operations.submit(client, DeleteHeld(held.claim, keep=False), answer)
            return
    _DELETE(self, client, job_id, answer)


def deleted_for_certain(self: Any, client: QueueClient, held: Reservation, answer: Any, result: Any) -> None:
    """Replaces `ReservationEnds._deleted_held`: a batch that failed is taken for done."""
    _DELETED_HELD(self, client, held, answer, True if isinstance(result, OperationFailed) else result)


def delete_by_id(
    connection: Connection, process_id: int, held: Sequence[ClaimId], *, keep: frozenset[ClaimId]
) -> set[ClaimId]:
    """Replaces `delete_held`: neither the holder nor the lease is a condition."""
    connection.execute(sa.delete(tasks).where(tasks.c.id.in_([claim.id for claim in held])))
    return set(held)


def release_by_id(connection: Connection, process_id: int, releases: Sequence[Any]) -> set[ClaimId]:
    """Replaces `release`: neither the holder nor the lease is a condition."""
    ids = [release.claim.id for release in releases]
    taken = sa.update(tasks).where(tasks.c.id.in_(ids), status_is(Status.WORKING))
    connection.execute(taken.values(status=Status.PENDING, deadline_at=None, process_id=None))
    return {release.claim for release in releases}


def take_back_as_claims(connection: Connection, locked: Sequence[Task], *args: Any, **options: Any) -> Any:
    """Replaces `rescue._take_back`: what a queue client has reserved counts as an attempt that crashed."""
    return _TAKE_BACK(connection, [replace(task, deadline_at=None) for task in locked], *args, **options)


_TAKE_BACK: Final = rescue._take_back
_RESERVATION: Final = Reservation.__init__
_DELETE: Final = Engine.delete
_DELETED_HELD: Final = ReservationEnds._deleted_held
