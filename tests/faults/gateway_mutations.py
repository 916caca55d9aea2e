"""The queue server with one of its guarantees taken out, for real nodes: what the rules about jobs must catch.

$PEERD_BREAK names the variant. `tests/faults/broken/sitecustomize.py` breaks the processes of the slots that it is for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd import shell
from peerd.store import rescue
from peerd.store.jobs import holding
from peerd.store.outcomes import ClaimId
from peerd.store.schema.tables import tasks
from peerd.store.tasks.rows import lock_tasks


class GatewayMutation(NamedTuple):
    """A variant, and the slot whose processes it breaks."""

    slot: str
    apply: Callable[[], None]


def delete_without_lease() -> None:
    """A client deletes the job that it once held, whoever holds it now."""

    def delete_held(
        connection: Connection, process_id: int, held: Sequence[ClaimId], *, keep: frozenset[ClaimId]
    ) -> set[ClaimId]:
        connection.execute(sa.delete(tasks).where(tasks.c.id.in_([claim.id for claim in held])))
        return set(held)

    vars(holding)[delete_held.__name__] = delete_held


def skip_heartbeat() -> None:
    """A living process does not say that it lives, and so its reservations are taken from it."""

    async def keep_heartbeat(*_: Any) -> None:
        await asyncio.get_running_loop().create_future()

    vars(shell)[keep_heartbeat.__name__] = keep_heartbeat


def count_as_crash() -> None:
    """An agent takes the reservations of a dead process for the claims of a worker."""

    def without_deadlines(*args: Any, **options: Any) -> list[Any]:
        return [msgspec.structs.replace(task, deadline_at=None) for task in lock_tasks(*args, **options)]

    vars(rescue)[lock_tasks.__name__] = without_deadlines


MUTATIONS: Final[Mapping[str, GatewayMutation]] = {
    "deletes without the lease": GatewayMutation("tubes-1", delete_without_lease),
    "a gateway sends no heartbeat": GatewayMutation("tubes-1", skip_heartbeat),
    "counts a reservation as a crash": GatewayMutation("agent", count_as_crash),
}
