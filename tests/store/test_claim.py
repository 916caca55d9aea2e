"""Claims: which process gets which tasks, in which order, and what a claim writes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from peerd.domain.lifecycle import Status
from peerd.domain.task import NewTask, Task
from peerd.store.claim.claim_result import RETURNED_COLUMNS, UNREAD_COLUMNS, WRITTEN_COLUMNS
from peerd.store.claim.claimer import Claimer
from peerd.store.claim.mutex import ClaimMutex
from peerd.store.enqueue import enqueue
from peerd.store.schema.sql_clock import seconds_from_now
from tests.store.world import World

pytestmark = pytest.mark.every_database


def order(world: World, claimer: Claimer, limit: int = 50) -> list[int]:
    return [task.id for task in world.take(claimer, limit)]


def test_a_claim_goes_by_priority_then_attempts_then_due_time_then_id_also_one_by_one(world: World) -> None:
    later = world.insert(created_at=seconds_from_now(-10))
    earlier = world.insert(created_at=seconds_from_now(-20))
    started = world.insert(created_at=seconds_from_now(-5), start_at=seconds_from_now(-30))
    tried = world.insert(created_at=seconds_from_now(-99), attempts=1)
    urgent = world.insert(priority=11)
    lazy = world.insert(priority=-5)
    same = world.run(enqueue.enqueue_many, [NewTask(queue="q", priority=3) for _ in range(3)])
    for status in Status:
        if status is not Status.PENDING:
            world.insert(status=str(status), priority=99, process_id=1, lease=1)
    world.insert(start_at=seconds_from_now(60), priority=99)
    world.insert(finish_at=seconds_from_now(-60), priority=99)
    open_ = world.insert(start_at=seconds_from_now(-60), finish_at=seconds_from_now(60), priority=50)
    expected = [open_, urgent, started, earlier, later, tried, *(one.id for one in same), lazy]
    claimer = world.claimer()
    assert [task.id for _ in range(4) for task in world.take(claimer, 1)] == expected[:4]
    assert order(world, claimer, 3) == expected[4:7], "no more than the limit"
    assert order(world, claimer) == expected[7:]


def test_a_claim_shows_every_column_as_it_is_in_the_row(world: World) -> None:
    assert sorted((*RETURNED_COLUMNS, *WRITTEN_COLUMNS, *UNREAD_COLUMNS)) == sorted(Task.__struct_fields__)
    world.node("a")
    hour = timedelta(hours=1)
    moment = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    fields: dict[str, Any] = {
        "node": "a",
        "priority": 77,
        "max_attempts": 9,
        "timeout": 12.5,
        "trace_context": "00-trace",
        "ttr": 60,
    }
    task_id = world.add(name="n", body='{"ü": "🎬"}', body_bytes=b"\x00\xff", unique_key="once", **fields)
    times = {
        "start_at": moment,
        "finish_at": datetime.now(UTC).replace(microsecond=0) + hour,
        "finished_at": moment + hour,
    }
    world.set(task_id, attempts=2, lease=41, result='{"of": "before"}', error="no", created_at=moment - hour, **times)
    [task] = world.take(world.claimer())
    assert task == world.get(task_id)
    assert (task.start_at, task.finished_at, task.created_at) == (moment, moment + hour, moment - hour)
    assert (task.checked_at, task.updated_at) == (task.worker_started_at, task.worker_started_at)
    assert [field for field in RETURNED_COLUMNS if getattr(task, field) is None] == [
        "limit_key"
    ]  # which takes another way


def test_a_claimer_that_has_met_contention_takes_everything_and_nothing_twice(world: World) -> None:
    """Its limit is too small for the mutex; where claimers write what they have read, it draws from a window."""
    ids = {world.add() for _ in range(30)}
    claimer, mutex = world.claimer(), ClaimMutex()
    mutex.record_contention()
    taken = [task.id for _ in range(10) for task in world.take(claimer, 3, mutex=mutex)]
    assert sorted(taken) == sorted(ids)
