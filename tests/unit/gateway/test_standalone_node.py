from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
import sqlalchemy as sa

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
    return [job.id for job in database.run(jobs.reserve, holder.claimer(("default",)), 10, 60)]


def test_reservations_of_earlier_processes_are_released_and_those_processes_have_ended(database: Database) -> None:
    node, killed = start(database)
    ids = [one.id for one in database.run(jobs.put, [NewTask(queue="default", ttr=60) for _ in range(3)])]
    assert reserve(database, killed) == ids
    node, holder = start(database)
    assert (holder.process_id != killed.process_id, holder.node_id) == (True, killed.node_id)
    assert [process.id for process in database.read(list_processes)] == [holder.process_id]
    assert reserve(database, holder) == ids
    database.run(node.deregister)  # which could not release them
    found = database.read(find_node, NAME)
    assert found is not None
    assert (found.incarnation, found.active) == (None, False)
    assert database.read(list_processes) == []
    _, again = start(database)
    assert [process.id for process in database.read(list_processes)] == [again.process_id]
    assert reserve(database, again) == ids


def test_heartbeats_of_node_and_process_are_renewed(database: Database) -> None:
    node, _ = start(database)
    for table in ("nodes", "processes"):
        change = sa.text(f"UPDATE {table} SET checked_at = '2020-01-01 00:00:00.000'")
        database.run(lambda connection, change: connection.execute(change).rowcount, change)
    database.run(node.heartbeat)
    found = database.read(find_node, NAME)
    (process,) = database.read(list_processes)
    assert found is not None
    assert found.checked_at is not None
    assert min(found.checked_at, process.checked_at).year > 2020
