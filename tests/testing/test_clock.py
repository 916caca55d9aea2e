from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta

import pytest

from peerd import Status
from peerd.domain.errors import TaskNotFound
from peerd.store import chore_batches, outcomes, rescue
from peerd.store.connection.database import Database
from peerd.store.outcomes import database_now
from peerd.store.schema.migrate import migrate
from peerd.testing import Clock
from tests.store.world import World, at_once, held
from tests.support.server_kinds import INNODB
from tests.support.servers import DatabaseFactory


@pytest.fixture(params=["sqlite", *INNODB])
def world(request: pytest.FixtureRequest, migrated_factory: DatabaseFactory, clock: Clock) -> Iterator[World]:
    with closing(Database(migrated_factory(request.param))) as database:
        clock.govern(database)
        yield World(database)


def test_a_row_is_stamped_and_claimed_by_the_clock(world: World, clock: Clock) -> None:
    made, claimer = clock.now, world.claimer()
    ids = [world.add(), world.insert(), world.insert(start_at=made + timedelta(seconds=300))]
    for task in map(world.get, ids):
        assert (task.created_at, task.updated_at) == (made, made)
    clock.advance(timedelta(hours=-1))
    assert world.take(claimer) == []
    clock.advance(3899.999)
    for task in world.take(claimer):
        assert (task.created_at, task.updated_at) == (made, clock.now)
    clock.advance(0.001)
    [task] = world.take(claimer)
    assert (task.id, task.worker_started_at, task.checked_at) == (ids[2], clock.now, clock.now)


def test_a_task_is_rescued_expired_and_purged_when_the_clock_decides(world: World, clock: Clock) -> None:
    touched, silent = world.add(), world.add()
    tasks = {task.id: task for task in world.take(world.claimer())}
    late = world.add(finish_in=30.0)
    clock.advance(20)
    assert world.store.run(outcomes.touch, {held(tasks[touched])}) == set()
    assert world.store.run(chore_batches.expire) == 0
    clock.advance(10.001)
    assert [one.task_id for one in world.store.run(rescue.rescue_untouched, 30.0)] == [silent]
    assert world.status(silent) is Status.FAILURE
    assert world.store.run(chore_batches.expire) == 1
    with pytest.raises(TaskNotFound):
        world.get(late)
    assert world.complete(tasks[touched])
    clock.advance(3599)
    assert world.store.run(chore_batches.purge, Status.DONE, 3600.0) == 0
    clock.advance(1)
    assert world.store.run(chore_batches.purge, Status.DONE, 3600.0) == 1


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
