from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

from peerd.gateway.operation_queue import OperationQueue
from peerd.gateway.operations import DeleteHeld, Holder, ReleaseHeld
from peerd.gateway.reservation_ends import ReservationEnds
from peerd.store.jobs.types import Release
from peerd.store.outcomes.recording import ClaimId

HOLDER = Holder(node_id=1, incarnation="i", process_id=1, default_ttr=60)


def test_a_reservation_that_is_being_deleted_is_not_released_before_its_delete() -> None:
    ended, other = ClaimId(5, 1), ClaimId(6, 1)

    async def order_of_execution() -> list[Any]:
        operations = OperationQueue(Mock(), HOLDER, Mock(), Mock())
        operations.submit("one client", ReleaseHeld(Release(claim=other)), Mock())
        operations.submit("another client", DeleteHeld(ended, keep=False), Mock())
        ReservationEnds(operations, Mock(), Mock(), Mock(), Mock()).return_claim(ended)
        return [operation for run in operations._open_batch.runs for operation in run.operations]

    release = ReleaseHeld(Release(claim=ended))
    executed = asyncio.run(order_of_execution())
    assert executed.index(DeleteHeld(ended, keep=False)) < executed.index(release)
