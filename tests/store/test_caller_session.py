"""Enqueuing in the caller's own transaction: it commits with the business data or not at all."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from peerd.domain.lifecycle import Status
from peerd.domain.task import NewTask
from peerd.store.connection import engines
from peerd.store.connection.caller_session import reads_latest_commits, utc_session
from peerd.store.connection.database import Database
from peerd.store.enqueue import enqueue
from peerd.store.tasks import actions
from tests.store.world import World

pytestmark = pytest.mark.every_database

ASYNC_DRIVERS = {"sqlite": "sqlite+aiosqlite", "mysql": "mysql+asyncmy", "postgresql": "postgresql+psycopg_async"}
NEW = NewTask(queue="q", body="{}", start_in=60.0, unique_key="k")


@pytest.fixture
def engine(world: World) -> Iterator[Engine]:
    """The application's own, with its database's usual settings, and a table of its own."""
    engine = sa.create_engine(world.store.url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)")
        connection.exec_driver_sql("DELETE FROM orders")
    yield engine
    engine.dispose()


def orders(world: World) -> int:
    return world.read(lambda c: int(c.exec_driver_sql("SELECT count(*) FROM orders").scalar_one()))


def test_a_task_commits_and_rolls_back_with_a_connections_transaction_or_a_session(
    world: World, engine: Engine
) -> None:
    for commits in (False, True):
        with engine.connect() as connection:
            transaction = connection.begin()
            connection.exec_driver_sql("INSERT INTO orders VALUES (7)")
            with utc_session(connection):
                enqueue.enqueue(connection, NEW)
                enqueue.enqueue_many(connection, [NewTask(queue="q") for _ in range(5)])
            transaction.commit() if commits else transaction.rollback()
        assert (orders(world), world.count()) == ((1, 6) if commits else (0, 0))
        assert world.run(enqueue.enqueue, NEW).created is not commits
        world.empty()
    for commits in (False, True):
        with Session(engine) as session:
            session.execute(sa.text("INSERT INTO orders VALUES (8)"))
            enqueue.enqueue(session.connection(), NEW)
            session.commit() if commits else session.rollback()
        assert (orders(world), world.count()) == ((2, 1) if commits else (1, 0))


@pytest.mark.parametrize("store", ["mariadb", "postgresql"], indirect=True)
def test_a_business_transaction_on_an_engine_of_its_own_may_be_silent_for_longer_than_ones_of_peerd(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Database.engine`, which docs/api.md warns against, ends it."""
    monkeypatch.setattr(engines, "IDLE_TRANSACTION_TIMEOUT", 1)
    ours = Database(world.store.url)
    with ours.engine.connect() as silent, engine.begin() as own:
        silent.exec_driver_sql("INSERT INTO orders VALUES (8)")
        own.exec_driver_sql("INSERT INTO orders VALUES (7)")
        time.sleep(2.2)
        enqueue.enqueue(own, NewTask(queue="q"))
        with pytest.raises(DBAPIError):
            silent.exec_driver_sql("SELECT 1")
        silent.invalidate()
    ours.close()
    assert (orders(world), world.count()) == (1, 1)


@pytest.fixture
async def async_engine(world: World, engine: Engine) -> AsyncIterator[AsyncEngine]:
    engine_ = create_async_engine(world.store.url.set(drivername=ASYNC_DRIVERS[world.store.name]))
    yield engine_
    await engine_.dispose()


async def test_a_task_commits_and_rolls_back_with_an_async_session(world: World, async_engine: AsyncEngine) -> None:
    def within(own: Session) -> None:
        with utc_session(own.connection()):
            enqueue.enqueue_many(own.connection(), [NEW, NewTask(queue="q", start_at=datetime.now(UTC))])

    for commits in (False, True):
        async with AsyncSession(async_engine) as session:
            await session.execute(sa.text("INSERT INTO orders VALUES (7)"))
            await session.run_sync(within)
            await (session.commit() if commits else session.rollback())
        assert (orders(world), world.count()) == ((1, 2) if commits else (0, 0))


def test_times_mean_the_same_in_a_session_of_another_zone_which_stays_as_it_was(world: World, engine: Engine) -> None:
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)
    zone = {"mysql": "SET time_zone = '+05:30'", "postgresql": "SET TIME ZONE 'Etc/GMT-5'", "sqlite": "SELECT 1"}
    with engine.connect() as connection:
        connection.exec_driver_sql(zone[world.store.name])
        with utc_session(connection):
            first = enqueue.enqueue(connection, NewTask(queue="q", start_at=moment))
            second = enqueue.enqueue(connection, NewTask(queue="q", start_in=7200.0))
        if world.store.name == "mysql":
            assert connection.exec_driver_sql("SELECT @@session.time_zone").scalar_one() == "+05:30"
        connection.commit()
        if world.store.name == "mysql":
            with pytest.raises(LookupError), utc_session(connection):
                raise LookupError
            assert connection.exec_driver_sql("SELECT @@session.time_zone").scalar_one() == "+05:30"
    assert world.get(first.id).start_at == moment
    other = world.get(second.id).start_at
    assert other is not None
    assert abs(other - moment) < timedelta(seconds=10)
    assert world.status(first.id) is world.status(second.id) is Status.SCHEDULED


@pytest.mark.parametrize("store", ["mariadb"], indirect=True)
def test_an_old_view_of_the_table_does_not_steal_a_key(world: World, engine: Engine) -> None:
    """REPEATABLE READ sees the table as it was; the key's row it gets as it is, and the task behind it must be too."""
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM tasks").scalar_one() == 0
        assert not reads_latest_commits(connection)
        holder = world.run(enqueue.enqueue, NEW)
        assert enqueue.enqueue(connection, NEW) == enqueue.Enqueued(holder.id, created=False)
        connection.commit()
        assert connection.exec_driver_sql("SELECT count(*) FROM tasks").scalar_one() == 1
        world.run(actions.cancel, holder.id)
        connection.commit()
        assert enqueue.enqueue(connection, NEW).created
        connection.commit()
    assert world.count() == 2
    assert world.run(reads_latest_commits)
