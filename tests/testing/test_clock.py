"""All that a database decides by time follows the clock that governs it."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime, timedelta

import pytest

from peerd import Status
from peerd.domain.errors import TaskNotFound
from peerd.store import queues
from peerd.store.connection.database import Database
from peerd.store.maintenance import chore_batches, rescue
from peerd.store.outcomes import touch
from peerd.store.outcomes.recording import database_now
from peerd.store.schema.migrate import migrate
from peerd.testing import Clock, ClockNotGovernable
from tests.store.world import World, at_once, held
from tests.support.servers import DatabaseFactory


def test_a_row_is_stamped_by_the_clock_whoever_writes_it(world: World, clock: Clock) -> None:
    for task_id in (world.add(), world.insert()):
        task = world.get(task_id)
        assert (task.created_at, task.updated_at) == (clock.now, clock.now)
    made = clock.now
    clock.advance("5m")
    task = world.take_one()
    assert (task.created_at, task.updated_at) == (made, clock.now)


def test_a_claim_takes_what_is_due_by_the_clock(world: World, clock: Clock) -> None:
    claimer = world.claimer()
    world.insert(start_at=clock.now + timedelta(seconds=60))
    assert world.take(claimer) == []
    clock.advance(59.999)
    assert world.take(claimer) == []
    clock.advance(0.001)
    [task] = world.take(claimer)
    assert (task.worker_started_at, task.checked_at) == (clock.now, clock.now)


def test_a_scheduled_task_and_a_retry_arrive_when_the_clock_decides(world: World, clock: Clock) -> None:
    scheduled = world.add(start_in=90.0)
    failing = world.add()
    assert world.fail(world.take_one(), retry_in=60.0)
    assert world.get(failing).start_at == clock.now + timedelta(seconds=60)
    seen = []
    for _ in range(3):
        seen.append((world.status(scheduled), world.status(failing)))
        clock.advance(45)
        world.stage_due()
    seen.append((world.status(scheduled), world.status(failing)))
    assert seen == [
        (Status.SCHEDULED, Status.FAILURE),
        (Status.SCHEDULED, Status.FAILURE),
        (Status.PENDING, Status.PENDING),
        (Status.PENDING, Status.PENDING),
    ]


def test_a_task_that_is_not_touched_is_rescued_when_the_clock_decides(world: World, clock: Clock) -> None:
    touched, silent = world.add(), world.add()
    tasks = {task.id: task for task in world.take(world.claimer())}
    clock.advance(20)
    assert world.store.run(touch.touch, {held(tasks[touched])}) == set()
    clock.advance(10.001)
    assert [one.task_id for one in world.store.run(rescue.rescue_untouched, 30.0)] == [silent]
    assert world.get(silent).start_at == clock.now


def test_a_task_is_expired_and_purged_when_the_clock_decides(world: World, clock: Clock) -> None:
    late, done = world.add(finish_in=30.0), world.add(priority=99)
    assert world.complete(world.take_one())
    clock.advance(29)
    assert world.store.run(chore_batches.expire) == 0
    clock.advance(1)
    assert world.store.run(chore_batches.expire) == 1
    with pytest.raises(TaskNotFound):
        world.get(late)
    assert world.store.run(chore_batches.purge, Status.DONE, 3600.0) == 0
    assert world.get(done).finished_at == clock.now - timedelta(seconds=30)
    clock.advance("1h")
    assert world.store.run(chore_batches.purge, Status.DONE, 3600.0) == 1


def test_a_pause_and_a_unique_key_end_when_the_clock_decides(world: World, clock: Clock) -> None:
    first = world.add(unique_key="k", unique_for=60.0)
    world.store.run(queues.pause, "q", 60.0)
    assert (world.take(world.claimer()), world.add(unique_key="k", unique_for=60.0)) == ([], first)
    clock.advance(61)
    assert [task.id for task in world.take(world.claimer())] == [first]
    assert world.add(unique_key="k", unique_for=60.0) != first


def test_the_clock_may_step_back(world: World, clock: Clock) -> None:
    world.add()
    clock.advance(timedelta(hours=-1))
    assert world.take(world.claimer()) == []
    assert world.store.read(database_now) == clock.now


def test_every_connection_reads_the_clock_from_any_thread(world: World, clock: Clock) -> None:
    clock.advance("17h")
    assert at_once([lambda: world.store.run(database_now)] * 4) == [clock.now] * 4
    with world.store.engine.connect() as connection:
        for _ in range(2):
            clock.advance("1s")
            with connection.begin():
                assert database_now(connection) == clock.now


def test_connections_that_were_open_before_are_governed_too(database_factory: DatabaseFactory) -> None:
    with closing(Database(database_factory("sqlite"))) as database:
        migrate(database)
        assert database.run(database_now).year > 2025
        Clock(datetime.fromisoformat("2001-02-03T04:05:06Z")).govern(database)
        assert str(database.run(database_now)) == "2001-02-03 04:05:06+00:00"
        other = Database(str(database.url))
        assert other.run(database_now).year > 2025
        other.close()


def test_postgresql_is_refused_with_the_remedy(database_factory: DatabaseFactory, clock: Clock) -> None:
    with (
        closing(Database(database_factory("postgresql"))) as database,
        pytest.raises(ClockNotGovernable, match="Test on SQLite or MariaDB"),
    ):
        clock.govern(database)
