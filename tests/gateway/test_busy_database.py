"""A gateway while another program writes to the file of SQLite, or has locked rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.connection.database import Database
from peerd.store.connection.sqlite_lock import WriterBusy
from peerd.testing import eventually
from tests.gateway.gateway_thread import GatewayThread
from tests.support.servers import DatabaseFactory


@pytest.fixture
def database(migrated_factory: DatabaseFactory) -> Iterator[Database]:
    with closing(Database(migrated_factory("sqlite"))) as database:
        yield database


@pytest.fixture
def other_writer(database: Database) -> Iterator[sqlite3.Connection]:
    """A connection of another program; it writes between BEGIN IMMEDIATE and COMMIT."""
    assert database.engine.url.database
    with closing(sqlite3.connect(database.engine.url.database, isolation_level=None)) as connection:
        yield connection


def test_a_command_that_needs_no_database_is_answered_while_another_program_writes(
    database: Database, other_writer: sqlite3.Connection
) -> None:
    with GatewayThread(database) as gateway, gateway.connect() as producer:
        producer.put(b"before")
        other_writer.execute("BEGIN IMMEDIATE")
        producer.send(b"put 0 0 60 5\r\nafter\r\n")
        with gateway.connect() as other:
            assert other.ask(b"list-tube-used\r\n") == b"USING default\r\n"
            assert other.ask(b"watch a\r\n") == b"WATCHING 2\r\n"
        assert producer.answer_that_came() is None
        other_writer.execute("COMMIT")
        assert producer.receive().startswith(b"INSERTED ")


def test_nothing_waits_for_another_writer_that_is_asked_not_to(
    database: Database, other_writer: sqlite3.Connection
) -> None:
    def never(_: Connection) -> None:
        pytest.fail("it has no lock")

    def refuse_another(_: object) -> None:
        with pytest.raises(WriterBusy):
            database.run_group_at_once(never)

    def insert_and_fail(connection: Connection) -> None:
        connection.exec_driver_sql("INSERT INTO queues (name) VALUES ('left')")
        raise ZeroDivisionError

    database.run(refuse_another)
    with pytest.raises(ZeroDivisionError):
        database.run_group_at_once(insert_and_fail)
    count = "SELECT count(*) FROM queues"
    assert database.run_group_at_once(lambda connection: connection.exec_driver_sql(count).scalar_one()) == 0
    other_writer.execute("BEGIN IMMEDIATE")
    refuse_another(None)
    other_writer.execute("COMMIT")
    refuse_another(None)  # the other writer was met a moment ago: it gets its turn
    assert database.run_group(lambda connection: "done") == "done"


@pytest.mark.parametrize("kind", ["postgresql", pytest.param("mariadb", marks=pytest.mark.slow)])
def test_a_locked_job_fails_the_command_of_its_client_alone(migrated_factory: DatabaseFactory, kind: str) -> None:
    with (
        closing(Database(migrated_factory(kind))) as database,
        GatewayThread(database) as gateway,
        gateway.connect() as holder,
        gateway.connect() as second,
        gateway.connect() as other,
        database.engine.connect() as elsewhere,
    ):
        for client in (holder, second):
            client.put(b"locked")
            assert client.ask(b"reserve\r\n").startswith(b"RESERVED ")
        ids = elsewhere.execute(sa.text("SELECT id FROM tasks ORDER BY id FOR UPDATE")).scalars().all()
        holder.send(b"delete %d\r\n" % ids[0])
        eventually(lambda: gateway.engine._operations._is_executing)
        second.send(b"delete %d\r\n" % ids[1])
        assert other.ask(b"put 0 0 60 5\r\nother\r\n", 30).startswith(b"INSERTED ")  # it is in the batch of the second
        assert [client.receive(30) for client in (holder, second)] == [b"INTERNAL_ERROR\r\n"] * 2
        elsewhere.rollback()
        assert holder.ask(b"delete %d\r\n" % ids[0]) == b"DELETED\r\n"
