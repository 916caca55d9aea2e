from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from peerd import Client
from peerd.domain.errors import DatabaseUnavailable
from peerd.testing import FaultyDatabase, eventually


@pytest.fixture
def database(tmp_path: Path) -> Iterator[FaultyDatabase]:
    with closing(FaultyDatabase(f"sqlite:///{tmp_path / 'peerd.sqlite'}")) as made:
        yield made


@pytest.fixture
def client(database: FaultyDatabase) -> Iterator[Client]:
    with closing(Client(database)) as made:
        made.tasks.counts()  # so that the tables are there
        yield made


def test_the_calls_that_were_named_fail_before_they_are_done(client: Client, database: FaultyDatabase) -> None:
    fault = database.fail("enqueue", call=2)
    client.enqueue("q")
    with pytest.raises(DatabaseUnavailable, match="a test made call 2 of enqueue fail"):
        client.enqueue("q")
    client.enqueue("q")
    assert (len(client.tasks.list()), database.calls["enqueue"], fault.hits) == (2, 3, 1)
    database.fail(call=2, error=ValueError("no such column"))
    client.queues.list()
    with pytest.raises(ValueError, match="no such column"):
        client.tasks.list()
    for call, times in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="counted from 1"):
            database.fail("claim", call=call, times=times)


def test_a_lost_reply_is_of_a_committed_call_and_an_outage_of_none(client: Client, database: FaultyDatabase) -> None:
    database.lose_reply("enqueue")
    with pytest.raises(DatabaseUnavailable, match="the reply was lost"):
        client.enqueue("q")
    with database.away() as outage:
        for call in (lambda: client.enqueue("q"), client.tasks.list, client.queues.list):
            with pytest.raises(DatabaseUnavailable, match="a test made it unavailable"):
                call()
    assert (len(client.tasks.list()), outage.hits) == (1, 3)


def test_the_arguments_show_which_calls_count(client: Client, database: FaultyDatabase) -> None:
    def add(connection: object, number: int, *, twice: bool = False) -> int:
        return number * (1 + twice)

    database.fail("add", call=2, times=None, when=lambda number, *, twice=False: twice)
    assert [database.run(add, 1), database.run(add, 1, twice=True), database.read(add, 2)] == [1, 2, 2]
    for _ in range(2):
        with pytest.raises(DatabaseUnavailable):
            database.read(add, 1, twice=True)


def test_a_call_or_its_reply_is_delayed_until_the_fault_is_healed(client: Client, database: FaultyDatabase) -> None:
    def has_tasks(count: int) -> bool:
        return len(client.tasks.list()) == count

    ways: dict[str, dict[str, float]] = {"hold": {}, "slow": {"seconds": 3600.0}, "hold_reply": {}}
    for before, (way, how) in enumerate(ways.items()):
        fault = getattr(database, way)("enqueue", **how)
        enqueuing = threading.Thread(target=client.enqueue, args=("q",))
        enqueuing.start()
        eventually(partial(getattr, fault, "hits"))
        eventually(partial(has_tasks, before + (way == "hold_reply")))
        assert enqueuing.is_alive()
        fault.heal()
        enqueuing.join(10)
        assert (len(client.tasks.list()), enqueuing.is_alive()) == (before + 1, False)
    with database.slow("list", seconds=0.001) as slow:
        assert len(client.tasks.list()) == 3
    assert slow.hits == 1
