"""Steps of tests of bulk actions: one is created, and its chunks are carried out."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from peerd.domain.bulk import BulkAction, TaskAction
from peerd.store.bulk import create_bulk, get_bulk, preview_bulk
from peerd.store.bulk_chunks import ChunkResult, carry_out_chunk
from peerd.store.schema.tables import bulk_actions
from peerd.store.schema.types import now
from peerd.testing import eventually
from tests.store.world import World

ENOUGH: Final = 600.0
"""Seconds in which a preview counts everything, however slow the machine is."""


def create(world: World, action: TaskAction, most: int | None = None, **fields: Any) -> BulkAction:
    """Create a bulk action whose tasks have been counted, so that its chunks have only to act on them."""
    let_the_clock_move(world)
    preview = world.read(preview_bulk, action, fields, within=ENOUGH)
    return world.run(create_bulk, action, fields, digest=preview.digest, most=most)


def chunk(world: World, size: int = 500) -> ChunkResult:
    """The next chunk, which does not wait for the pause after the one before."""
    world.execute(sa.update(bulk_actions).values(next_at=None))
    let_the_clock_move(world)
    return world.run(carry_out_chunk, size)


def carry_out(world: World, bulk: BulkAction, size: int = 500) -> BulkAction:
    for _ in range(200):
        chunk(world, size)
        found = world.read(get_bulk, bulk.id)
        if found.has_ended:
            return found
    raise AssertionError(bulk)


def let_the_clock_move(world: World) -> None:
    """SQLite's clock has milliseconds: what the test wrote before is of an earlier one than what comes now."""
    first = time_of(world)
    eventually(lambda: time_of(world) > first, every=0.001)


def time_of(world: World) -> datetime:
    """The time of the database."""
    moment: datetime = world.scalars(sa.select(now()))[0]
    assert moment is not None
    return moment
