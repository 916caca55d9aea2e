from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from peerd import Client
from peerd.domain.errors import DatabaseUnavailable
from peerd.store.connection.database import Database
from peerd.testing import FaultyDatabase, eventually
from tests.store.world import at_once


@pytest.fixture
def database(tmp_path: Path) -> Iterator[FaultyDatabase]:
    with closing(FaultyDatabase(f"sqlite:///{tmp_path / 'peerd.sqlite'}")) as made:
        yield made


@pytest.fixture
def client(database: FaultyDatabase) -> Iterator[Client]:
    with closing(Client(database)) as made:
        made.tasks.counts()  # so that the tables are there
        yield made


def test_the_call_that_was_named_fails_before_it_is_done(client: Client, database: FaultyDatabase) -> None:
    fault = database.fail("enqueue", call=2)
    client.enqueue("q")
    with pytest.raises(DatabaseUnavailable, match="a test made call 2 of enqueue fail"):
        client.enqueue("q")
    client.enqueue("q")
    assert (len(client.tasks.list()), database.calls["enqueue"], fault.hits) == (2, 3, 1)


def test_any_call_and_any_error_can_be_chosen(client: Client, database: FaultyDatabase) -> None:
    database.fail(call=2, error=ValueError("no such column"))
    client.queues.list()
    with pytest.raises(ValueError, match="no such column"):
        client.tasks.list()
    database.fail("list", error=KeyError)
    with pytest.raises(KeyError):
        client.nodes.list()


def test_a_lost_reply_is_of_a_call_that_was_committed(client: Client, database: FaultyDatabase) -> None:
    database.lose_reply("enqueue")
    with pytest.raises(DatabaseUnavailable, match="the reply was lost"):
        client.enqueue("q")
    assert len(client.tasks.list()) == 1


def test_an_unavailable_database_answers_no_call(client: Client, database: FaultyDatabase) -> None:
    with database.away() as outage:
        for call in (lambda: client.enqueue("q"), client.tasks.list, client.queues.list):
            with pytest.raises(DatabaseUnavailable, match="a test made it unavailable"):
                call()
    assert (client.tasks.list(), outage.hits) == ([], 3)


def test_the_arguments_shows_which_calls_count(client: Client, database: FaultyDatabase) -> None:
    def add(connection: object, number: int, *, twice: bool = False) -> int:
        return number * (1 + twice)

    database.fail("add", call=2, times=None, when=lambda number, *, twice=False: twice)
    assert [database.run(add, 1), database.run(add, 1, twice=True), database.read(add, 2)] == [1, 2, 2]
    for _ in range(2):
        with pytest.raises(DatabaseUnavailable):
            database.read(add, 1, twice=True)


@pytest.mark.parametrize("way", ["hold", "hold_reply"])
def test_a_call_or_its_reply_is_delayed_until_the_fault_is_healed(
    client: Client, database: FaultyDatabase, way: str
) -> None:
    fault = getattr(database, way)("enqueue")
    enqueuing = threading.Thread(target=client.enqueue, args=("q",))
    enqueuing.start()
    eventually(lambda: fault.hits)
    if way == "hold_reply":
        eventually(client.tasks.list)
    assert len(client.tasks.list()) == (way == "hold_reply")
    assert enqueuing.is_alive()
    fault.heal()
    enqueuing.join(10)
    assert (len(client.tasks.list()), enqueuing.is_alive()) == (1, False)


def test_a_slow_call_waits_and_succeeds(client: Client, database: FaultyDatabase) -> None:
    fault = database.slow("enqueue", seconds=3600.0)
    enqueuing = threading.Thread(target=client.enqueue, args=("q",))
    enqueuing.start()
    eventually(lambda: fault.hits)
    assert client.tasks.list() == []
    database.heal()
    enqueuing.join(10)
    assert len(client.tasks.list()) == 1
    with database.slow("list", seconds=0.001) as slow:
        assert len(client.tasks.list()) == 1
    assert slow.hits == 1


def test_of_many_concurrent_calls_exactly_the_given_number_fail(client: Client, database: FaultyDatabase) -> None:
    database.fail("enqueue", call=5, times=3)

    def went_well() -> bool:
        try:
            client.enqueue("q")
        except DatabaseUnavailable:
            return False
        return True

    assert sum(at_once([went_well] * 16)) == 13
    assert (len(client.tasks.list(limit=100)), database.calls["enqueue"]) == (13, 16)


def test_an_impossible_fault_is_refused(database: FaultyDatabase) -> None:
    with pytest.raises(ValueError, match="counted from 1"):
        database.fail("claim", call=0)
    with pytest.raises(ValueError, match="counted from 1"):
        database.fail("claim", times=0)


def test_it_is_accepted_wherever_a_database_is(database: FaultyDatabase) -> None:
    assert isinstance(database, Database)
    assert database.name == "sqlite"
