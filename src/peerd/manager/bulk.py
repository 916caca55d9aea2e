"""The manager's part in bulk actions: chunk after chunk, with a pause after each, for a time slice."""

from __future__ import annotations

import time
from typing import Final

from peerd.domain.bulk import BulkAction
from peerd.runtime.observability.events import BulkActionEnded, BulkActionStarted, BulkChunkDone, EventBus
from peerd.store.bulk.acting import PAUSE_RATIO, ChunkResult, ChunkSize, carry_out_chunk
from peerd.store.connection.database import DatabaseThreads

MARGIN: Final = 0.002
"""Seconds after a pause at which it is over on the database's clock as well."""


class BulkRunner:
    """Carries out the bulk actions of a cluster, beside the managers of other nodes.

    Args:
        threads: of the manager.
        events: get what began and ended, and what rings are made of.
        largest: tasks of a chunk.
    """

    def __init__(self, threads: DatabaseThreads, events: EventBus, largest: int) -> None:
        self._threads = threads
        self._events = events
        self._size = ChunkSize(largest)

    async def run_chunk(self) -> float | None:
        """Do the next chunk; the seconds to pause before another one, or None where nothing is left to do now."""
        began = time.monotonic()
        result = await self._threads.run(carry_out_chunk, self._size.tasks)
        seconds = time.monotonic() - began
        if result.rows * 2 >= self._size.tasks:
            self._size.record(seconds)
        for event in events_of_chunk(result):
            self._events.emit(event)
        return max(PAUSE_RATIO * seconds, result.pause + MARGIN) if result.has_more else None


def events_of_chunk(result: ChunkResult) -> list[BulkActionStarted | BulkChunkDone | BulkActionEnded]:
    """What has happened to a bulk action in a chunk that was committed."""
    bulk = result.bulk
    if bulk is None:
        return []
    number, action = bulk.id, bulk.action_name
    found: list[BulkActionStarted | BulkChunkDone | BulkActionEnded] = []
    if result.began:
        began = BulkActionStarted(bulk_id=number, action=action, matched=bulk.matched, at_least=bulk.at_least)
        found.append(began)
    if result.rows:
        done = BulkChunkDone(
            bulk_id=number, action=action, rows=result.rows, queues=result.queues, revoked=result.revoked
        )
        found.append(done)
    if bulk.has_ended:
        found.append(_ended(bulk))
    return found


def _ended(bulk: BulkAction) -> BulkActionEnded:
    began_at = bulk.started_at or bulk.updated_at
    return BulkActionEnded(
        bulk_id=bulk.id,
        action=bulk.action_name,
        state=bulk.state,
        done=bulk.done,
        skipped=bulk.skipped,
        failed=bulk.failed,
        seconds=max((bulk.updated_at - began_at).total_seconds(), 0.0),
        error=bulk.error,
    )
