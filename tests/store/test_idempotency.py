"""A request that is repeated with its idempotency key writes nothing again, whatever happened to the first one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
import sqlalchemy as sa

from peerd.domain.errors import IdempotencyKeyReused, NodeNotFound
from peerd.domain.task import NewTask
from peerd.store.enqueue.idempotency import enqueue_once, purge_idempotency_keys
from peerd.store.schema.tables import idempotency_keys
from tests.store.world import World, at_once

pytestmark = pytest.mark.every_database

TASKS = [NewTask(queue="q", priority=1), NewTask(queue="q", unique_key="a"), NewTask(queue="p", start_in=60.0)]


def test_a_repeated_request_gets_the_first_answer(world: World) -> None:
    first = world.run(enqueue_once, "key", TASKS)
    assert world.run(enqueue_once, "key", TASKS) == first
    assert [one.created for one in first] == [True] * 3
    assert world.count() == 3
    with pytest.raises(IdempotencyKeyReused, match="came with another request"):
        world.run(enqueue_once, "key", TASKS[:2])
    assert world.count() == 3
    assert world.run(enqueue_once, "other key", TASKS[:1])[0].id != first[0].id


def test_a_request_that_failed_leaves_its_key_free(world: World) -> None:
    with pytest.raises(NodeNotFound):
        world.run(enqueue_once, "key", [TASKS[0], NewTask(queue="q", node="nowhere")])
    assert (world.count(), world.count(idempotency_keys)) == (0, 0)
    assert len(world.run(enqueue_once, "key", TASKS)) == 3


def test_of_requests_at_once_one_writes_and_all_get_its_answer(world: World) -> None:
    answers = at_once([partial(world.run, enqueue_once, "key", TASKS[:1])] * 6)
    assert len({answer[0].id for answer in answers}) == 1
    assert world.count() == 1


def test_keys_are_deleted_after_a_day(world: World) -> None:
    def age_newest(connection: sa.Connection, hours: int) -> None:
        newest = sa.select(idempotency_keys.c.id).order_by(idempotency_keys.c.created_at.desc()).limit(1)
        found = connection.execute(newest).scalar_one()
        old = datetime.now(UTC) - timedelta(hours=hours)
        connection.execute(sa.update(idempotency_keys).where(idempotency_keys.c.id == found).values(created_at=old))

    for hours in (23, 25, 26):
        world.run(enqueue_once, f"{hours} hours old", TASKS[:1])
        world.run(age_newest, hours)
    assert world.run(purge_idempotency_keys, 1) == 1
    assert world.run(purge_idempotency_keys, 500) == 1
    assert world.run(purge_idempotency_keys, 500) == 0
    assert world.count(idempotency_keys) == 1
