"""Connections that were closed while they rested: nobody notices, and nothing is done twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from peerd.domain.errors import DatabaseUnavailable
from peerd.store.claim import claim
from peerd.store.connection.database import Database
from peerd.store.nodes.nodes import heartbeat_only
from peerd.store.statements.token import new_token
from tests.store.world import World

pytestmark = pytest.mark.parametrize("store", ["mariadb", "postgresql"], indirect=True)
NUMBER = {"mysql": "SELECT connection_id()", "postgresql": "SELECT pg_backend_pid()"}
KILL = {"mysql": "KILL {}", "postgresql": "SELECT pg_terminate_backend({})"}
GONE = {
    "mysql": "SELECT count(*) FROM information_schema.processlist WHERE id = {}",
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE pid = {}",
}


@pytest.fixture
def resting(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A database whose connections count as rested the moment that they are given back."""
    monkeypatch.setattr("peerd.store.connection.pool_liveness.NO_CHECK_WITHIN", -1.0)
    opened = Database(world.store.url)
    yield opened
    opened.close()


def number_of(connection: Connection) -> int:
    return int(connection.exec_driver_sql(NUMBER[connection.dialect.name]).scalar_one())


def close_from_outside(world: World, number: int) -> None:
    """As a server does that is started again, or a firewall that forgets."""
    name = world.store.name
    with world.store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as admin:
        admin.exec_driver_sql(KILL[name].format(number))
        while admin.exec_driver_sql(GONE[name].format(number)).scalar():
            pass


@contextmanager
def pings(engines_: tuple[Engine, ...], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Each look whether a connection is still there."""
    seen: list[Any] = []
    with monkeypatch.context() as patched:
        for engine in engines_:
            ping = engine.dialect.do_ping

            def look(connection: Any, ping: Callable[[Any], bool] = ping) -> bool:
                seen.append(connection)
                return ping(connection)

            patched.setattr(engine.dialect, "do_ping", look)
        yield seen


@pytest.mark.parametrize("way", ["run", "run_autocommit", "run_idempotent", "read"])
def test_one_that_was_closed_is_replaced(world: World, resting: Database, way: str) -> None:
    operate: Callable[..., int] = getattr(resting, way)
    before = operate(number_of)
    assert operate(number_of) == before
    close_from_outside(world, before)
    assert operate(number_of) != before


def test_one_that_was_closed_long_ago_is_replaced(world: World, resting: Database, monkeypatch: Any) -> None:
    monkeypatch.setattr("peerd.store.connection.pool_liveness.SOCKET_CHECK_WITHIN", -1.0)
    test_one_that_was_closed_is_replaced(world, resting, "run_autocommit")


def test_one_whose_server_has_sent_nothing_since_it_was_used_is_not_checked(
    world: World, resting: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = resting.run_autocommit(number_of)
    with pings(resting.engines, monkeypatch) as seen:
        assert resting.run_autocommit(number_of) == before
        assert not seen
        close_from_outside(world, before)
        assert resting.run_autocommit(number_of) != before
        assert len(seen) == 1


def test_heartbeats_reads_and_transactions_are_not_preceded_by_a_check(
    world: World, resting: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerd.store.connection.pool_liveness.SOCKET_CHECK_WITHIN", -1.0)
    incarnation = world.incarnation("a")
    for way in (resting.run, resting.run_autocommit, resting.read):
        way(number_of)
    with pings(resting.engines, monkeypatch) as seen:
        resting.run_idempotent(heartbeat_only, "a", incarnation)
        resting.read(number_of)
        resting.run(number_of)
        assert not seen
        resting.run_autocommit(claim.claim, world.claimer(), token=new_token(), limit=1)
        assert len(seen) == 1


def test_a_transaction_that_is_lost_before_its_commit_was_sent_is_done_once(world: World, resting: Database) -> None:
    tries: list[int] = []

    def write(connection: Connection) -> None:
        connection.execute(sa.text("INSERT INTO tasks (queue, body) VALUES ('q', '{}')"))
        tries.append(number_of(connection))
        if len(tries) == 1:
            close_from_outside(world, tries[0])
        connection.execute(sa.text("INSERT INTO tasks (queue, body) VALUES ('q', '{}')"))

    resting.run(number_of)
    resting.run(write)
    assert len(tries) == 2
    assert world.count() == 2


def test_a_transaction_whose_commit_was_not_answered_is_not_repeated(world: World, resting: Database) -> None:
    tries: list[int] = []

    def write(connection: Connection) -> None:
        connection.execute(sa.text("INSERT INTO tasks (queue, body) VALUES ('q', '{}')"))
        tries.append(number_of(connection))
        close_from_outside(world, tries[0])

    resting.run(number_of)
    with pytest.raises(DatabaseUnavailable):
        resting.run(write)
    assert len(tries) == 1
    assert world.count() == 0


def test_statements_that_are_committed_one_by_one_are_not_repeated(world: World, resting: Database) -> None:
    tries: list[int] = []

    def write(connection: Connection) -> None:
        connection.execute(sa.text("INSERT INTO tasks (queue, body) VALUES ('q', '{}')"))
        tries.append(number_of(connection))
        close_from_outside(world, tries[0])
        number_of(connection)

    resting.run_autocommit(number_of)
    with pytest.raises(DatabaseUnavailable):
        resting.run_autocommit(write)
    assert len(tries) == world.count() == 1


def test_one_that_was_in_use_just_now_is_not_tried_again(world: World) -> None:
    """What is lost then is an outage, and told at once."""
    tries: list[int] = []
    with_new_connections = Database(world.store.url)

    def read(connection: Connection) -> None:
        tries.append(number_of(connection))
        close_from_outside(world, tries[0])
        number_of(connection)

    try:
        with pytest.raises(DatabaseUnavailable):
            with_new_connections.read(read)
        assert len(tries) == 1
    finally:
        with_new_connections.close()
