"""Unique keys, each of which one task has at most, and idempotency keys: a request that is repeated writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import sqlalchemy as sa

from peerd.domain.bulk import BulkRetry
from peerd.domain.errors import IdempotencyKeyReused, NodeNotFound, UniqueKeyTaken
from peerd.domain.lifecycle import Status
from peerd.domain.task import NewTask
from peerd.store import chore_batches, enqueue
from peerd.store.connection.database import Database
from peerd.store.enqueue import Enqueued, enqueue_once, purge_idempotency_keys
from peerd.store.schema.tables import idempotency_keys
from peerd.store.schema.types import seconds_from_now
from peerd.store.tasks.actions import act_on_task
from tests.store.world import World, at_once

pytestmark = pytest.mark.every_database

COMPETITORS = 8


def enqueue_key(store: Database, key: str = "k", queue: str = "q", scope: str | float = "unfinished") -> Enqueued:
    return store.run(enqueue.enqueue, NewTask(queue=queue, unique_key=key, unique_for=scope))


def test_of_many_competitors_one_wins_and_the_others_learn_the_winner(world: World) -> None:
    scopes: list[str | float] = ["unfinished", 3600.0, "forever"]
    for is_held_by_a_finished_task in (False, True):
        for round_, scope in enumerate(scopes * 2):
            world.empty()
            if is_held_by_a_finished_task:
                world.task_in(Status.DONE, unique_key="k")
            enqueue_one = partial(enqueue_key, world.store, "k", "q", scope)
            answers = at_once([enqueue_one] * COMPETITORS)
            assert [answer.created for answer in answers].count(True) == 1, (scope, round_)
            assert len({answer.id for answer in answers}) == 1, (scope, round_)
            assert world.count() == 1 + is_held_by_a_finished_task, (scope, round_)


def test_bulk_enqueues_of_the_same_keys_in_other_orders_do_not_deadlock(world: World) -> None:
    keys = [f"k{number}" for number in range(20)]
    new = [NewTask(queue="q", unique_key=key) for key in keys]
    bulks: list[Callable[[], list[Enqueued]]] = [
        partial(world.run, enqueue.enqueue_many, new if turn % 2 else new[::-1]) for turn in range(4)
    ]
    answers = at_once(bulks)
    assert sum(one.created for bulk in answers for one in bulk) == len(keys) == world.count()
    twice = world.run(enqueue.enqueue_many, [NewTask(queue="q", unique_key=key) for key in ("b", "a", "b", "a", "a")])
    assert [twice[at].id for at in (0, 1, 1)] == [twice[at].id for at in (2, 3, 4)]
    assert [answer.created for answer in twice] == [True, True, False, False, False]


def test_a_retry_and_enqueues_of_its_key_leave_one_unfinished_task(world: World) -> None:
    for round_ in range(5):
        key = f"k{round_}"
        old = world.task_in(Status.DONE, unique_key=key)

        def retry(old: int = old) -> bool:
            try:
                world.run(act_on_task, old, BulkRetry())
            except UniqueKeyTaken:
                return False
            return True

        def enqueue_anew(key: str = key) -> bool:
            return enqueue_key(world.store, key).created

        competitors: list[Callable[[], bool]] = [retry, enqueue_anew, enqueue_anew, enqueue_anew]
        assert at_once(competitors).count(True) == 1


def test_a_purge_and_enqueues_of_the_same_keys_do_not_fail_each_other(world: World) -> None:
    keys = [f"k{number}" for number in range(10)]
    for key in keys:
        world.task_in(Status.DONE, unique_key=key)
    bulk = [NewTask(queue="q", unique_key=key) for key in keys]
    jobs: list[Callable[[], object]] = [
        partial(world.run, chore_batches.purge, Status.DONE, -60.0),
        partial(world.run, enqueue.enqueue_many, bulk),
        partial(world.run, enqueue.enqueue_many, bulk),
    ]
    at_once(jobs)
    assert all(not enqueue_key(world.store, key).created for key in keys)
    assert world.count() == len(keys)


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
    newest = sa.select(idempotency_keys.c.id).order_by(idempotency_keys.c.created_at.desc()).limit(1)
    for hours in (23, 25, 26):
        world.run(enqueue_once, f"{hours} hours old", TASKS[:1])
        aged = sa.update(idempotency_keys).where(idempotency_keys.c.id == world.scalars(newest)[0])
        world.execute(aged.values(created_at=seconds_from_now(-3600.0 * hours)))
    assert [world.run(purge_idempotency_keys, most) for most in (1, 500, 500)] == [1, 1, 0]
    assert world.count(idempotency_keys) == 1
