"""Claims: which process gets which tasks, in which order, and what a claim writes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from peerd.domain.lifecycle import Status
from peerd.domain.task import NewTask, Task
from peerd.store import enqueue, nodes, processes
from peerd.store.schema.tables import limits
from peerd.store.schema.types import seconds_from_now
from peerd.store.take.claimer import Claimer, ClaimMutex
from peerd.store.take.claiming import RETURNED_COLUMNS, UNREAD_COLUMNS, WRITTEN_COLUMNS
from peerd.store.take.quarantined import should_empty_for_quarantined
from tests.store.world import World

pytestmark = pytest.mark.every_database


def order(world: World, claimer: Claimer, limit: int = 50) -> list[int]:
    return [task.id for task in world.take(claimer, limit)]


def test_a_claim_goes_by_priority_then_failures_then_due_time_then_id_also_one_by_one(world: World) -> None:
    later = world.insert(created_at=seconds_from_now(-10))
    earlier = world.insert(created_at=seconds_from_now(-20))
    started = world.insert(created_at=seconds_from_now(-5), start_at=seconds_from_now(-30))
    tried = world.insert(created_at=seconds_from_now(-99), attempts=1, failures=1)
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


WAIT = 10.0


def emptying_processes(world: World, *claimers: Claimer) -> list[int]:
    """Indexes of the claimers whose processes are to empty themselves."""
    numbered = enumerate(claimers)
    return [number for number, claimer in numbered if world.read(should_empty_for_quarantined, claimer, WAIT)]


def test_one_process_after_another_empties_the_oldest_first_and_half_of_them_never(world: World) -> None:
    claimers = [world.claimer(), world.claimer(node="b"), world.claimer(), world.claimer(), world.claimer(node="b")]
    task_id = world.insert(crashes=1)
    for waited, number in ((11, 1), (15, 1), (21, 2), (35, 2), (41, 3), (9_999, 3)):  # five seconds for a slow machine
        world.set(task_id, created_at=seconds_from_now(-waited))
        assert emptying_processes(world, *claimers) == [0, 1, 2][:number], waited


def test_a_process_that_cannot_empty_first_is_not_waited_for(world: World) -> None:
    ended, other_kind = world.claimer(), world.claimer(kind="thumbnails")
    draining, silent, mine = world.claimer(node="b"), world.claimer(node="c"), world.claimer()
    world.insert(crashes=1, created_at=seconds_from_now(-11))
    world.run(processes.end_process, ended.process_id, "killed by SIGKILL")
    assert emptying_processes(world, mine) == []
    world.run(nodes.set_draining, "b", draining=True)
    assert emptying_processes(world, mine) == []
    world.run(nodes.deregister_node, "c", world.incarnation("c"))
    assert emptying_processes(world, mine) == [0]
    assert emptying_processes(world, draining, silent, other_kind) == [2]


def test_no_process_empties_for_a_task_that_may_not_start(world: World) -> None:
    claimer = world.claimer()
    world.insert(crashes=1, limit_key="a", created_at=seconds_from_now(-60))
    assert emptying_processes(world, claimer) == [0]
    beside = world.insert(limit_key="a", status="done", process_id=claimer.process_id)
    for limited in ("a", "*", ""):
        world.execute(sa.insert(limits).values(queue="q", limit_key=limited, running=1))
        for status, expected in (("done", [0]), ("working", []), ("done", [0])):
            world.set(beside, status=status)
            assert emptying_processes(world, claimer) == expected, (limited, status)
        world.execute(sa.delete(limits))
