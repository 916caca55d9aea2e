"""The chores, by every node at once, and those that the model does not know; it holds what the others write."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import sqlalchemy as sa

from peerd.domain.lifecycle import Status
from peerd.store import chore_batches, nodes, processes
from peerd.store.schema.tables import attempts, tasks
from peerd.store.schema.tables import nodes as node_table
from peerd.store.schema.tables import processes as process_table
from peerd.store.schema.types import seconds_from_now
from tests.store.world import World, at_once
from tests.support.server_kinds import INNODB

pytestmark = pytest.mark.every_database


def fill(world: World, number: int, **values: object) -> None:
    world.execute(sa.insert(tasks).values([{"queue": "q", **values}] * number))


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


@pytest.mark.parametrize("store", INNODB, indirect=True)
def test_a_task_whose_end_is_a_zero_date_has_expired(world: World) -> None:
    task_id = world.add()
    with world.store.engine.begin() as connection:
        connection.exec_driver_sql("SET SESSION sql_mode = ''")
        connection.exec_driver_sql(f"UPDATE tasks SET finish_at = '0000-00-00 00:00:00' WHERE id = {task_id}")
        connection.exec_driver_sql("SET SESSION sql_mode = DEFAULT")
    assert world.run(chore_batches.expire, 25) == 1


def silence_node(world: World, name: str) -> None:
    world.node(name)
    world.execute(
        sa.update(node_table).where(node_table.c.name == name).values(checked_at=seconds_from_now(-100), active=False)
    )


def test_a_task_of_a_silent_node_that_is_failed_keeps_the_attempt_of_its_lease(world: World) -> None:
    silence_node(world, "gone")
    pinned = world.add(node="gone")
    world.set(pinned, attempts=1, lease=1)
    failed = {"task_id": pinned, "lease": 1, "number": 1, "outcome": "failure"}
    world.execute(sa.insert(attempts).values(failed))  # the row about its end must not meet that of the same lease
    assert world.run(chore_batches.fail_pinned, 60.0) == 1
    assert "silent for more than 60 s" in (world.get(pinned).error or "")
    assert [(one.outcome, one.number) for one in world.attempts(pinned)] == [("failure", 1), ("dead", 0)]


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
