"""Enqueuing in the caller's own transaction: it commits with the business data or not at all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from peerd.domain.lifecycle import Status
from peerd.domain.task import NewTask
from peerd.store import enqueue
from peerd.store.connection import mysql, postgresql
from peerd.store.connection.database import Database
from peerd.store.connection.mysql import reads_latest_commits, utc_session
from tests.store.world import World
from tests.support.server_kinds import INNODB, ON_SERVERS

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


def test_a_task_commits_and_rolls_back_with_a_connections_transaction(world: World, engine: Engine) -> None:
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


@pytest.mark.parametrize("store", ON_SERVERS, indirect=True)
def test_a_business_transaction_on_an_engine_of_its_own_may_be_silent_for_longer_than_ones_of_peerd(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Database.engine`, which docs/api.md warns against, ends it."""
    for server in (mysql, postgresql):
        monkeypatch.setattr(server, "IDLE_TRANSACTION_TIMEOUT", 1)
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


async def test_a_task_commits_and_rolls_back_with_an_async_session(world: World, engine: Engine) -> None:
    def within(own: Session) -> None:
        with utc_session(own.connection()):
            enqueue.enqueue_many(own.connection(), [NEW, NewTask(queue="q", start_at=datetime.now(UTC))])

    async_engine = create_async_engine(world.store.url.set(drivername=ASYNC_DRIVERS[world.store.name]))
    for commits in (False, True):
        async with AsyncSession(async_engine) as session:
            await session.execute(sa.text("INSERT INTO orders VALUES (7)"))
            await session.run_sync(within)
            await (session.commit() if commits else session.rollback())
        assert (orders(world), world.count()) == ((1, 2) if commits else (0, 0))
    await async_engine.dispose()


def test_times_mean_the_same_in_a_session_of_another_zone_which_stays_as_it_was(world: World, engine: Engine) -> None:
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)
    set_zone, get_zone = {
        "mysql": ("SET time_zone = '+05:30'", "SELECT @@session.time_zone"),
        "postgresql": ("SET TIME ZONE 'Etc/GMT-5'", "SELECT 1"),
        "sqlite": ("SELECT 1", "SELECT 1"),
    }[world.store.name]
    with engine.connect() as connection:
        connection.exec_driver_sql(set_zone)
        before = connection.exec_driver_sql(get_zone).scalar_one()
        with utc_session(connection):
            task_id = enqueue.enqueue(connection, NewTask(queue="q", start_at=moment)).id
        connection.commit()
        with pytest.raises(LookupError), utc_session(connection):
            raise LookupError
        assert connection.exec_driver_sql(get_zone).scalar_one() == before
    assert (world.get(task_id).start_at, world.status(task_id)) == (moment, Status.SCHEDULED)


@pytest.mark.parametrize("store", INNODB, indirect=True)
def test_an_old_view_of_the_table_does_not_steal_a_key(world: World, engine: Engine) -> None:
    """REPEATABLE READ sees the table as it was; the key's row it gets as it is, and the task behind it must be too."""
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM tasks").scalar_one() == 0
        assert not reads_latest_commits(connection)
        holder = world.run(enqueue.enqueue, NEW)
        assert enqueue.enqueue(connection, NEW) == enqueue.Enqueued(holder.id, created=False)
        connection.commit()
        assert connection.exec_driver_sql("SELECT count(*) FROM tasks").scalar_one() == 1
    assert world.run(reads_latest_commits)
