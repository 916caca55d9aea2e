from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from peerd import Status, Task
from peerd.store.connection.database import Database
from peerd.testing import insert_task, make_task
from tests.store.world import World


@pytest.fixture
def world(migrated_database: str) -> Iterator[World]:
    with closing(Database(migrated_database)) as database:
        yield World(database)


def filled(task: Task) -> set[str]:
    """The columns that are not null."""
    return {field for field in Task.__struct_fields__ if getattr(task, field) is not None}


def test_a_made_row_of_each_status_equals_one_that_reached_it_by_operations(world: World) -> None:
    for status in Status:
        most = 1 if status is Status.DEAD else 3
        made = insert_task(world.store, status, queue="q", max_attempts=most)
        assert filled(make_task(status, max_attempts=most)) == filled(made), status
        if status is not Status.BURIED:  # which no operation of the world gives
            real = world.get(world.task_in(status, max_attempts=most))
            made = insert_task(world.store, status, queue="q", max_attempts=most, result=real.result)
            assert filled(made) == filled(real), status
            for column in ("status", "attempts", "max_attempts", "lease", "failures", "crashes", "progress"):
                assert getattr(made, column) == getattr(real, column), (status, column)
            assert world.outcomes(made.id) == world.outcomes(real.id), status


def test_a_made_row_is_claimed_and_ended_like_any_other(world: World) -> None:
    held = insert_task(world.store, "working", queue="q", unique_key="k")
    assert world.add(unique_key="k") == held.id
    claimer = world.claimer()
    mine = {"worker_node_id": claimer.node_id, "process_id": claimer.process_id}
    assert world.complete(insert_task(world.store, "working", queue="q", **mine))
    poison = insert_task(world.store, queue="q", attempts=2, crashes=1)
    assert world.outcomes(poison.id) == ["failure", "crash"]
    assert world.take(claimer) == []
    assert [task.id for task in world.take(claimer, quarantined=True)] == [poison.id]
    tried = insert_task(world.store, queue="q", attempts=2)
    assert world.fail(world.take_one())
    assert (world.status(tried.id), world.outcomes(tried.id)) == (Status.DEAD, ["failure", "failure", "dead"])
    with pytest.raises(ValueError, match="is not a valid Status"):
        make_task("running")
