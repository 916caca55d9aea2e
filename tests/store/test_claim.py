"""Claims: which process gets which tasks, in which order, and what a claim writes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from peerd.domain.lifecycle import Status
from peerd.domain.task import NewTask, Task
from peerd.store import queue_states, queues
from peerd.store.claim import claim
from peerd.store.claim.claim_result import RETURNED_COLUMNS, UNREAD_COLUMNS, WRITTEN_COLUMNS
from peerd.store.claim.claimer import Claimer
from peerd.store.claim.mutex import ClaimMutex
from peerd.store.enqueue import enqueue
from peerd.store.maintenance import rescue
from peerd.store.nodes import nodes
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.statements.token import new_token
from tests.store.world import World, held

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


def test_several_queues_are_served_as_one(world: World) -> None:
    expected = [world.add(queue, priority=priority) for priority, queue in ((9, "b"), (7, "a"), (5, "b"), (3, "c"))]
    world.add("other", priority=99)
    assert order(world, world.claimer("a", "b", "c"), 3) == expected[:3]
    assert order(world, world.claimer("a", "b", "c"), 3) == expected[3:]


def test_a_node_takes_unpinned_tasks_and_its_own_but_not_those_pinned_elsewhere(world: World) -> None:
    world.node("a")
    world.node("b")
    anybodys, mine, others = world.add(), world.add(node="a", priority=11), world.add(node="b", priority=12)
    assert order(world, world.claimer(node="a")) == [mine, anybodys]
    assert order(world, world.claimer(node="b")) == [others]


def test_a_paused_queue_is_left_alone_until_it_is_resumed_or_the_pause_ends(world: World) -> None:
    ids = [world.add("q"), world.add("q")]
    other = world.add("other")
    claimer = world.claimer("q", "other")
    world.run(queues.pause, "q")
    assert order(world, claimer) == [other]
    world.run(queues.resume, "q")
    assert order(world, claimer, 1) == ids[:1]
    world.run(queues.pause, "q", 3600.0)
    assert order(world, claimer) == []
    world.run(queues.pause, "q", 0.0)
    assert order(world, claimer) == ids[1:]
    assert not any(state.paused for state in world.read(queue_states.list_queues))


def test_a_draining_node_and_a_replaced_incarnation_take_nothing(world: World) -> None:
    first, second = world.add(), world.add()
    claimer = world.claimer()
    world.run(nodes.set_draining, "a", draining=True)
    assert order(world, claimer) == []
    world.run(nodes.set_draining, "a", draining=False)
    assert order(world, claimer, 1) == [first]
    assert world.run(nodes.register_incarnation, "a", "next", replaces=world.incarnation("a"))
    assert order(world, claimer) == []
    assert world.status(second) is Status.PENDING


def test_a_claim_writes_the_holder_of_the_task_and_raises_its_lease(world: World) -> None:
    task_id = world.add()
    world.set(task_id, progress=0.5, progress_note="of an earlier attempt", lease=7)
    claimer = world.claimer(default_attempts=4)
    token = new_token()
    [task] = world.run(claim.claim, claimer, token=token, limit=5).tasks
    assert task == world.get(task_id)
    assert (task.status, task.lease, task.max_attempts) == (Status.WORKING, 8, 4)
    assert (task.worker_node_id, task.process_id) == (claimer.node_id, claimer.process_id)
    assert task.worker_started_at is not None
    assert task.checked_at is not None
    assert abs(task.checked_at - task.worker_started_at) < timedelta(milliseconds=100)
    assert abs(task.checked_at - datetime.now(UTC)) < timedelta(seconds=5)
    assert (task.progress, task.progress_note) == (None, None)
    assert world.column(task_id, "claim_token") == token


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


def test_max_attempts_is_the_rows_then_the_handlers_then_the_workers(world: World) -> None:
    rows = [world.add(name="n", max_attempts=9), world.add(name="n"), world.add(name="m"), world.add("r", name="n")]
    claimer = world.claimer("q", "r", attempts_of={("q", "n"): 7, ("q", "x"): 1, ("r", "m"): 4}, default_attempts=2)
    tasks = {task.id: task.max_attempts for task in world.take(claimer)}
    assert [tasks[task_id] for task_id in rows] == [9, 7, 2, 2]


def test_a_task_that_crashed_a_process_is_claimed_only_alone(world: World) -> None:
    world.node("a")
    crashed = [world.add(), world.add(node="a")]
    claimer = world.claimer()
    world.take(claimer)
    world.run(rescue.release_tasks_of_process, claimer.process_id, "killed by signal 9", crashed=True)
    world.stage_due()
    innocent = world.add()
    another = world.claimer()
    assert order(world, another) == [innocent]
    assert [task.id for task in world.take(another, 1, quarantined=True)] == crashed[:1]
    assert [task.id for task in world.take(another, 5, quarantined=True)] == crashed[1:]


def test_a_claim_whose_answer_was_lost_is_read_back_by_its_token(world: World) -> None:
    for priority in (1, 3, 2):
        world.add(priority=priority)
    claimer = world.claimer()
    token = new_token()
    won = world.run(claim.claim, claimer, token=token, limit=3).tasks
    assert world.read(claim.claimed_by_token, claimer, token) == won
    world.complete(won[0])
    assert [task.id for task in world.read(claim.claimed_by_token, claimer, token)] == [t.id for t in won[1:]]
    assert world.read(claim.claimed_by_token, claimer, new_token()) == []
    assert world.read(claim.claimed_by_token, world.claimer(), token) == []
    world.run(rescue.release_unknown_claims, claimer.process_id, [held(won[1])], "lost")
    second = world.take_one(claimer)
    assert (second.id, second.lease, second.attempts) == (won[1].id, won[1].lease + 1, 0)
    [one] = world.run(enqueue.enqueue_many, [NewTask(queue="q")])  # it has a token in the same column, and is no claim
    assert world.read(claim.claimed_by_token, claimer, world.column(one.id, "claim_token")) == []


def test_a_claimer_that_has_met_contention_takes_everything_and_nothing_twice(world: World) -> None:
    """Its limit is too small for the mutex; where claimers write what they have read, it draws from a window."""
    ids = {world.add() for _ in range(30)}
    claimer, mutex = world.claimer(), ClaimMutex()
    mutex.record_contention()
    taken = [task.id for _ in range(10) for task in world.take(claimer, 3, mutex=mutex)]
    assert sorted(taken) == sorted(ids)
