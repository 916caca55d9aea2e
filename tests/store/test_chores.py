"""The chores: each moves what is ready and nothing else, in bounded batches, on every node at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import sqlalchemy as sa

from peerd.domain.lifecycle import Status
from peerd.domain.task import NewTask
from peerd.store.enqueue import enqueue
from peerd.store.maintenance import chore_batches
from peerd.store.nodes import nodes, processes
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import attempts, tasks
from peerd.store.schema.tables import nodes as node_table
from peerd.store.schema.tables import processes as process_table
from tests.store.world import World, at_once

pytestmark = pytest.mark.every_database


def fill(world: World, number: int, **values: object) -> None:
    world.execute(sa.insert(tasks).values([{"queue": "q", **values}] * number))


def test_what_is_due_is_staged_and_what_is_ahead_is_scheduled(world: World) -> None:
    for status, other in ((Status.SCHEDULED, Status.FAILURE), (Status.FAILURE, Status.SCHEDULED)):
        due = world.insert(status=str(status), start_at=seconds_from_now(-1))
        ahead = world.insert(status=str(status), start_at=seconds_from_now(60))
        startless = world.insert(status=str(status))
        assert world.run(chore_batches.stage_due, other) == 0
        assert world.run(chore_batches.stage_due, status) == 2
        found = [world.status(task_id) for task_id in (due, ahead, startless)]
        assert found == [Status.PENDING, status, Status.PENDING]
    ahead, plain, started = (world.insert(**more) for more in ({"start_at": seconds_from_now(60)}, {}, {}))
    world.set(started, start_at=seconds_from_now(-60))
    assert world.run(chore_batches.postpone) == 1
    found = [world.status(one) for one in (ahead, plain, started)]
    assert found == [Status.SCHEDULED, Status.PENDING, Status.PENDING]


def test_pending_tasks_past_their_end_are_deleted_with_their_keys_and_attempts(world: World) -> None:
    late = world.add(unique_key="k", max_attempts=5)
    world.fail(world.take_one())
    world.stage_due()
    world.set(late, finish_at=seconds_from_now(-1))
    kept = [world.add(finish_in=60.0), world.add()]
    working = world.task_in(Status.WORKING)
    world.set(working, finish_at=seconds_from_now(-1))
    assert world.run(chore_batches.expire) == 1
    assert world.find(late) is None
    assert all(world.find(task_id) for task_id in [*kept, working])
    assert world.count(attempts) == 0
    assert world.run(enqueue.enqueue, NewTask(queue="q", unique_key="k")).created


def test_what_ended_long_ago_is_purged(world: World) -> None:
    for status in (Status.DONE, Status.DEAD, Status.CANCELED):
        world.empty()
        ids = {one: world.task_in(one) for one in Status}
        assert world.run(chore_batches.purge, status, 3600.0) == 0
        world.set(ids[status], finished_at=seconds_from_now(-3601))
        assert world.run(chore_batches.purge, status, 3600.0) == 1
        assert {one for one, task_id in ids.items() if world.find(task_id) is None} == {status}


def test_a_batch_is_bounded(world: World) -> None:
    fill(world, 12, status="scheduled", start_at=seconds_from_now(-1))
    assert [world.run(chore_batches.stage_due, Status.SCHEDULED, 5) for _ in range(4)] == [5, 5, 2, 0]
    world.execute(sa.update(tasks).values(finish_at=seconds_from_now(-1)))
    assert [world.run(chore_batches.expire, 5) for _ in range(4)] == [5, 5, 2, 0]


def test_chores_everywhere_at_once_lose_and_double_nothing(world: World) -> None:
    fill(world, 60, status="scheduled", start_at=seconds_from_now(-1))
    fill(world, 60, status="failure", start_at=seconds_from_now(-1))
    fill(world, 60, start_at=seconds_from_now(3600))
    fill(world, 60, finish_at=seconds_from_now(-1))
    fill(world, 60, status="done", finished_at=seconds_from_now(-7200))
    chores: list[Callable[[], int]] = [
        partial(world.run, chore_batches.stage_due, Status.SCHEDULED, 25),
        partial(world.run, chore_batches.stage_due, Status.FAILURE, 25),
        partial(world.run, chore_batches.postpone, 25),
        partial(world.run, chore_batches.expire, 25),
        partial(world.run, chore_batches.purge, Status.DONE, 3600.0, 25),
    ]

    def manage() -> list[int]:
        done = [0] * len(chores)
        while any(turn := [chore() for chore in chores]):
            done = [before + now for before, now in zip(done, turn, strict=True)]
        return done

    totals = [sum(column) for column in zip(*at_once([manage] * 4), *[manage()], strict=True)]
    assert totals == [60, 60, 60, 60, 60]
    counts = world.read(
        lambda c: {
            row[0]: row[1] for row in c.execute(sa.select(tasks.c.status, sa.func.count()).group_by(tasks.c.status))
        }
    )
    assert counts == {"pending": 120, "scheduled": 60}


def silence_node(world: World, name: str) -> None:
    world.node(name)
    world.execute(
        sa.update(node_table).where(node_table.c.name == name).values(checked_at=seconds_from_now(-100), active=False)
    )


def test_tasks_of_a_silent_node_are_counted_freed_or_failed_by_policy(world: World) -> None:
    world.node("alive")
    silence_node(world, "gone")
    pinned = [world.add(node="gone") for _ in range(3)]
    world.set(pinned[2], attempts=1, lease=1)
    failed = {"task_id": pinned[2], "lease": 1, "number": 1, "outcome": "failure"}
    world.execute(sa.insert(attempts).values(failed))  # the row about its end must not meet that of the same lease
    others = [world.add(node="alive"), world.add(), world.add(node="gone", start_in=60.0)]
    assert world.read(chore_batches.count_pinned, 60.0) == 3
    assert world.read(chore_batches.count_pinned, 1000.0) == 0
    assert world.run(chore_batches.free_pinned, 1000.0) == world.run(chore_batches.fail_pinned, 1000.0) == 0
    assert world.run(chore_batches.free_pinned, 60.0, 2) == 2
    assert [world.get(task_id).node_id for task_id in pinned[:2]] == [None, None]
    assert world.run(chore_batches.fail_pinned, 60.0) == 1
    dead = world.get(pinned[2])
    assert dead.status is Status.DEAD
    assert "silent for more than 60 s" in (dead.error or "")
    assert [(one.outcome, one.number) for one in world.attempts(dead.id)] == [("failure", 1), ("dead", 0)]
    assert [world.status(one) for one in others] == [Status.PENDING, Status.PENDING, Status.SCHEDULED]


def test_records_of_ended_processes_are_purged(world: World) -> None:
    old, fresh, living = (world.claimer().process_id for _ in range(3))
    for process_id in (old, fresh):
        world.run(processes.end_process, process_id, "exit status 1")
    world.execute(sa.update(process_table).where(process_table.c.id == old).values(ended_at=seconds_from_now(-100)))
    assert world.run(chore_batches.purge_processes, 50.0) == 1
    left = world.read(partial(processes.list_processes, ended=True))
    assert {process.id for process in left} == {fresh, living}


def test_nodes_that_have_been_gone_for_long_are_forgotten_unless_a_task_waits_for_them(world: World) -> None:
    for name in ("alive", "lately", "gone", "stopped", "awaited", "served"):
        world.node(name)
    for name in ("gone", "awaited", "served"):
        silence_node(world, name)
    world.run(nodes.deregister_node, "stopped", world.incarnation("stopped"))
    old = sa.update(node_table).where(node_table.c.name.in_(["gone", "stopped", "awaited", "served"]))
    world.execute(old.values(checked_at=seconds_from_now(-7200.0), active=False))
    waits = world.add(node="awaited", start_in=3600.0)
    world.set(world.add(node="served"), status="done", finished_at=seconds_from_now(0.0))
    assert world.run(nodes.purge_nodes, 3600.0, 500) == 3
    assert [node.name for node in world.read(nodes.list_nodes)] == ["alive", "awaited", "lately"]
    world.set(waits, node_id=None)
    assert world.run(nodes.purge_nodes, 3600.0, 500) == 1
