"""Connections that were closed while idle: callers get no error, and nothing is executed twice."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import DatabaseUnavailable
from peerd.store.connection.database import Database
from peerd.store.statements import new_token
from peerd.store.take import claiming
from peerd.testing import eventually
from tests.store.world import World
from tests.support.server_kinds import ON_SERVERS

pytestmark = [pytest.mark.every_database, pytest.mark.parametrize("store", ON_SERVERS, indirect=True)]
NUMBER = {"mysql": "SELECT connection_id()", "postgresql": "SELECT pg_backend_pid()"}
KILL = {"mysql": "KILL {}", "postgresql": "SELECT pg_terminate_backend({})"}
GONE = {
    "mysql": "SELECT count(*) FROM information_schema.processlist WHERE id = {}",
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE pid = {}",
}


@pytest.fixture
def idle_database(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A database whose connections count as idle as soon as they are returned to the pool."""
    monkeypatch.setattr("peerd.store.connection.pools.NO_CHECK_WITHIN", -1.0)
    opened = Database(world.store.url)
    yield opened
    opened.close()


def number_of(connection: Connection) -> int:
    return int(connection.exec_driver_sql(NUMBER[connection.dialect.name]).scalar_one())


def is_open(world: World, number: int) -> bool:
    return bool(world.store.read(lambda one: one.exec_driver_sql(GONE[one.dialect.name].format(number)).scalar()))


def close_from_outside(world: World, number: int) -> None:
    """As a restart of the server does, or a firewall that drops the connection."""
    name = world.store.name
    with world.store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as admin:
        admin.exec_driver_sql(KILL[name].format(number))
        while admin.exec_driver_sql(GONE[name].format(number)).scalar():
            pass


def test_a_connection_that_was_closed_is_replaced_whether_lately_or_long_ago(
    world: World, idle_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = ["run", "run_short", "read", "run_short"]
    for number, way in enumerate(ways):
        if number == 3:
            monkeypatch.setattr("peerd.store.connection.pools.SOCKET_CHECK_WITHIN", -1.0)
        operate: Callable[..., int] = getattr(idle_database, way)
        before = operate(number_of)
        assert operate(number_of) == before, way
        close_from_outside(world, before)
        assert operate(number_of) != before, way


def test_a_check_precedes_only_what_cannot_be_repeated_where_the_server_has_sent_something_or_long_ago(
    world: World, idle_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinged: list[Any] = []

    def ping_and_note(driver: Any, ping: Callable[[Any], bool]) -> bool:
        pinged.append(driver)
        return ping(driver)

    for engine in idle_database.engines.distinct():
        monkeypatch.setattr(engine.dialect, "do_ping", partial(ping_and_note, ping=engine.dialect.do_ping))
    before = idle_database.run_short(number_of)
    assert (idle_database.run_short(number_of), pinged) == (before, [])
    close_from_outside(world, before)
    assert (idle_database.run_short(number_of) != before, len(pinged)) == (True, 1)
    monkeypatch.setattr("peerd.store.connection.pools.SOCKET_CHECK_WITHIN", -1.0)
    for way in (idle_database.run, idle_database.read):
        way(number_of)
    pinged.clear()
    idle_database.read(number_of)
    idle_database.run(number_of)
    assert not pinged
    idle_database.run_short(claiming.claim, world.claimer(), token=new_token(), limit=1)
    assert len(pinged) == 1


def test_a_transaction_that_is_lost_before_its_commit_was_sent_is_done_once(
    world: World, idle_database: Database
) -> None:
    tries: list[int] = []

    def write(connection: Connection) -> None:
        connection.execute(sa.text("INSERT INTO tasks (queue, body) VALUES ('q', '{}')"))
        tries.append(number_of(connection))
        if len(tries) == 1:
            close_from_outside(world, tries[0])
        connection.execute(sa.text("INSERT INTO tasks (queue, body) VALUES ('q', '{}')"))

    idle_database.run(number_of)
    idle_database.run(write)
    assert len(tries) == 2
    assert world.count() == 2


def test_what_may_have_been_committed_is_not_repeated(world: World, idle_database: Database) -> None:
    """A transaction whose commit was not answered, and statements that are committed one by one."""
    tries: list[int] = []

    def write(connection: Connection, *, goes_on: bool) -> None:
        connection.execute(sa.text("INSERT INTO tasks (queue, body) VALUES ('q', '{}')"))
        tries.append(number_of(connection))
        close_from_outside(world, tries[-1])
        if goes_on:
            number_of(connection)

    ways: list[tuple[Callable[..., object], int]] = [(idle_database.run, 0), (idle_database.run_short, 1)]
    for way, rows in ways:
        way(number_of)
        with pytest.raises(DatabaseUnavailable):
            way(write, goes_on=rows == 1)
        assert (len(tries), world.count()) == (1 + rows, rows)


def test_connections_that_nothing_uses_are_closed_and_those_in_use_are_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_are_closed(numbers: set[int]) -> bool:
        return not any(is_open(world, number) for number in numbers)

    def meet(connection: Connection) -> int:
        number = number_of(connection)
        together.wait(10)
        return number

    monkeypatch.setattr("peerd.store.connection.pools.UNUSED_AFTER", 0.2)
    together = threading.Barrier(2)
    with closing(Database(world.store.url)) as database, ThreadPoolExecutor(2) as threads:
        for _ in range(2):  # also after all were closed
            both = {future.result() for future in [threads.submit(database.run, meet) for _ in range(2)]}
            assert len(both) == 2
            used = set[int]()

            def one_is_kept(both: set[int] = both, used: set[int] = used) -> bool:
                used.add(database.run(number_of))
                return [number in used for number in both if is_open(world, number)] == [True]

            eventually(one_is_kept)
            assert len(used) == 1
            eventually(partial(all_are_closed, both))


def test_a_connection_in_use_while_its_database_is_closed_is_closed_when_it_is_returned(world: World) -> None:
    def close_database(connection: Connection) -> int:
        database.close()
        return number_of(connection)

    database = Database(world.store.url)
    number = database.run(close_database)
    gc.collect()  # a connection that nothing closed would warn here
    eventually(lambda: not is_open(world, number))
