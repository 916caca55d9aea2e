"""The rows of a standalone server in ``nodes`` and ``processes``, from start to start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from peerd.domain.task import NewTask
from peerd.gateway.operations import Holder
from peerd.gateway.standalone.own_node import OwnNode
from peerd.store import jobs
from peerd.store.connection.database import Database
from peerd.store.nodes.nodes import find_node
from peerd.store.nodes.processes import list_processes
from peerd.testing.temporary_database import TemporaryDatabase

NAME = "peerd-beanstalkd"


@pytest.fixture
def database() -> Iterator[Database]:
    with closing(TemporaryDatabase()) as database:
        yield database


def start(database: Database) -> tuple[OwnNode, Holder]:
    node = OwnNode()
    return node, database.run(node.register, 60)


def reserve(database: Database, holder: Holder) -> list[int]:
    found = database.run(jobs.reserve, holder.claimer(("default",)), 10, 60)
    return [job.id for job in found]


def test_reservations_of_earlier_processes_are_released_and_those_processes_have_ended(database: Database) -> None:
    _, killed = start(database)
    ids = [one.id for one in database.run(jobs.put, [NewTask(queue="default", ttr=60) for _ in range(3)])]
    assert reserve(database, killed) == ids
    _, holder = start(database)
    assert holder.process_id != killed.process_id
    assert holder.node_id == killed.node_id
    (process,) = database.read(list_processes)
    assert process.id == holder.process_id
    assert reserve(database, holder) == ids


def test_what_an_orderly_end_could_not_release_is_released_by_the_next_start(database: Database) -> None:
    node, holder = start(database)
    ids = [one.id for one in database.run(jobs.put, [NewTask(queue="default", ttr=60)])]
    assert reserve(database, holder) == ids
    database.run(node.deregister)
    _, again = start(database)
    assert reserve(database, again) == ids


def test_an_orderly_end_frees_the_name_and_ends_the_process(database: Database) -> None:
    node, _ = start(database)
    database.run(node.deregister)
    found = database.read(find_node, NAME)
    assert found is not None
    assert (found.incarnation, found.active) == (None, False)
    assert database.read(list_processes) == []
    _, again = start(database)
    assert [process.id for process in database.read(list_processes)] == [again.process_id]


def test_heartbeats_of_node_and_process_are_renewed(database: Database) -> None:
    node, _ = start(database)
    database.run(
        lambda connection: connection.exec_driver_sql("UPDATE nodes SET checked_at = '2020-01-01 00:00:00.000'")
    )
    database.run(
        lambda connection: connection.exec_driver_sql("UPDATE processes SET checked_at = '2020-01-01 00:00:00.000'")
    )
    database.run(node.heartbeat)
    found = database.read(find_node, NAME)
    (process,) = database.read(list_processes)
    assert found is not None
    assert found.checked_at is not None
    assert min(found.checked_at, process.checked_at).year > 2020
