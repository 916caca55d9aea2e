"""A single statement, executed without SQLAlchemy: it commits, and reports errors and lost connections as with it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from peerd.domain.errors import DatabaseBusy, DatabaseUnavailable
from peerd.operate.client import Client
from peerd.store.connection import database as database_module
from peerd.store.statements.autocommit import AutocommitConnection
from tests.store.world import World

pytestmark = pytest.mark.every_database

SERVERS = pytest.mark.parametrize("store", ["mariadb", "postgresql"], indirect=True)
INSERT = "INSERT INTO tasks (queue) VALUES ('q')"


def run_query(connection: AutocommitConnection, query: str) -> int:
    answer: int = connection.exec_driver_sql(query, ()).scalar_one()
    return answer


@pytest.fixture
def begun(world: World) -> Iterator[list[object]]:
    """The transactions that SQLAlchemy has begun for this thread; the bell has its own."""
    seen: list[object] = []
    here = threading.get_ident()

    def on_begin(connection: sa.Connection) -> None:
        if threading.get_ident() == here:
            seen.append(connection)

    for engine in world.store.engines:
        sa.event.listen(engine, "begin", on_begin)
    yield seen
    for engine in world.store.engines:
        sa.event.remove(engine, "begin", on_begin)


def test_a_plain_enqueue_begins_no_transaction_and_one_with_a_key_does(world: World, begun: list[object]) -> None:
    with Client(world.store) as client:
        client.enqueue("q", unique="a")
        assert begun
        begun.clear()
        client.enqueue("q", body={"a": 1}, start_in="1h", priority=3)
        assert begun == []
    assert world.count() == 2


@SERVERS
def test_a_lost_answer_is_reported_and_nothing_is_written_twice(world: World) -> None:
    tries = 0
    cut = "KILL CONNECTION CONNECTION_ID()"
    if world.store.name == "postgresql":
        cut = "SELECT pg_terminate_backend(pg_backend_pid())"

    def write_and_lose_the_answer(connection: AutocommitConnection) -> None:
        nonlocal tries
        tries += 1
        connection.exec_driver_sql(INSERT, ())
        connection.exec_driver_sql(cut, ())

    with pytest.raises(DatabaseUnavailable):
        world.store.run_statement(write_and_lose_the_answer)
    assert (tries, world.count()) == (1, 1)
    with Client(world.store) as client:
        client.enqueue("q")
    assert world.count() == 2


@SERVERS
def test_what_the_server_rolled_back_is_repeated_a_bounded_number_of_times(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0
    undo = "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213"
    if world.store.name == "postgresql":
        undo = "DO $$ BEGIN RAISE serialization_failure; END $$"

    def write(connection: AutocommitConnection, undone: int) -> int:
        nonlocal tries
        tries += 1
        return connection.exec_driver_sql(undo if tries <= undone else INSERT, ()).rowcount

    assert world.store.run_statement(write, undone=2) == 1
    assert (tries, world.count()) == (3, 1)
    tries = 0
    monkeypatch.setattr(database_module, "TRIES", 2)
    with pytest.raises(DatabaseBusy):
        world.store.run_statement(write, undone=9)
    assert (tries, world.count()) == (2, 1)


def test_an_invalid_statement_raises_sqlalchemys_error_and_costs_no_connection(world: World) -> None:
    number = "SELECT connection_id()" if world.store.name == "mysql" else "SELECT pg_backend_pid()"
    same = "SELECT 1" if world.store.name == "sqlite" else number
    before = world.store.run_statement(run_query, same)
    with pytest.raises(DBAPIError, match="nowhere") as caught:
        world.store.run_statement(lambda connection: connection.exec_driver_sql("INSERT INTO nowhere VALUES (1)", ()))
    assert not caught.value.connection_invalidated
    assert world.store.run_statement(run_query, same) == before


@SERVERS
def test_a_connection_whose_query_was_interrupted_gives_its_answer_to_no_other(world: World) -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    kept = signal.signal(signal.SIGUSR1, interrupt)
    sleep = "SELECT sleep(3)" if world.store.name == "mysql" else "SELECT pg_sleep(3)"
    timer = threading.Timer(0.3, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1))
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            world.store.run_statement(lambda connection: connection.exec_driver_sql(sleep, ()))
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, kept)
    answers = [world.store.run_statement(run_query, f"SELECT {number}") for number in range(5)]
    assert answers == [0, 1, 2, 3, 4]
