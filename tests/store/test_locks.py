"""A claim locks what it takes and little else: other claimers must not wait, nor read through the locked rows."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
import sqlalchemy as sa

from peerd.domain.task import NewTask
from peerd.store import enqueue, outcomes
from peerd.store.connection.database import Database
from peerd.store.schema.tables import tasks
from peerd.store.statements import new_token
from peerd.store.take import claiming
from tests.store.world import World, held
from tests.support.server_kinds import ON_SERVERS
from tests.support.servers import as_admin

pytestmark = pytest.mark.every_database

SERVERS = pytest.mark.parametrize("store", ON_SERVERS, indirect=True)
A_FEW = 4
"""Locks beside those of rows that are taken: of the table, of a gap, of the row where a search ended."""


def fill(world: World, node: str) -> None:
    """Lanes for any node and for this one, both longer than a claim; and much that no claim wants."""
    lots: list[NewTask] = []
    for number in range(200):
        lots += [NewTask(queue="q", priority=number % 3), NewTask(queue="q", node=node), NewTask(queue="other")]
        lots += [NewTask(queue="q", start_in=3600.0)]
    world.run(enqueue.enqueue_many, lots)
    done = sa.update(tasks).where(tasks.c.queue == "other", tasks.c.id % 2 == 0).values(status="done")
    world.execute(done)


def rows_locked(store: Database, connection: sa.Connection) -> int:
    """The number of rows of `tasks` that an open transaction has locked, as other sessions see it."""
    if store.name == "postgresql":
        return _rows_that_others_skip(store)
    session = connection.exec_driver_sql("SELECT connection_id()").scalar_one()
    time.sleep(0.2)  # InnoDB renews this table of its own no more often than each 100 ms
    count = sa.text("SELECT trx_rows_locked FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = :session")
    with closing(Database(as_admin(store.url))) as admin:
        return admin.read(lambda other: int(other.execute(count, {"session": session}).scalar_one()))


def _rows_that_others_skip(store: Database) -> int:
    free = sa.select(tasks.c.id).with_for_update(skip_locked=True)
    with store.engine.connect() as other:
        left = len(other.execute(free).all())
        other.rollback()
    return World(store).count() - left


@SERVERS
def test_a_claim_locks_two_rows_for_each_that_it_takes_at_the_most_and_an_empty_one_none(world: World) -> None:
    claimer, other = world.claimer(node="a"), world.claimer("nothing-is-here", node="b")
    fill(world, "a")
    for number in (1, 10, 100):
        with world.store.engine.connect() as connection:
            taken = claiming.claim(connection, claimer, token=new_token(), limit=number).tasks
            locked = rows_locked(world.store, connection)
            connection.rollback()
        assert len(taken) == number
        assert number <= locked <= 2 * number + A_FEW, number
    with world.store.engine.connect() as connection:
        assert not claiming.claim(connection, other, token=new_token(), limit=50).tasks
        assert _rows_that_others_skip(world.store) == 0
        connection.rollback()


@SERVERS
def test_a_claim_takes_others_than_those_that_are_locked(world: World) -> None:
    urgent, others = ([world.add(priority=priority) for _ in range(3)] for priority in (99, 1))
    claimer = world.claimer()
    with world.locking(tasks, *urgent):
        assert [task.id for task in world.take(claimer)] == others
    assert [task.id for task in world.take(claimer)] == urgent


@SERVERS
def test_touching_and_completing_lock_the_rows_that_they_write(world: World) -> None:
    claimer = world.claimer(node="a")
    fill(world, "a")
    taken = world.take(claimer, 50)
    with world.store.engine.connect() as connection:
        outcomes.touch(connection, {held(task) for task in taken[:25]})
        outcomes.complete(connection, claimer.process_id, {held(task): None for task in taken[25:]})
        assert 50 <= rows_locked(world.store, connection) <= 50 + A_FEW
        connection.rollback()
