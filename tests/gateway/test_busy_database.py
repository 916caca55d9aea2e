"""A gateway on SQLite while another program writes to the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.engine import Connection

from peerd.store.connection.database import Database
from peerd.store.connection.sqlite_lock import WriterBusy
from peerd.store.schema.migrate import migrate
from tests.gateway.beanstalk_connection import BeanstalkConnection
from tests.gateway.gateway_thread import GatewayThread


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gateway.sqlite"


@pytest.fixture
def database(file: Path) -> Iterator[Database]:
    with closing(Database(f"sqlite:///{file}")) as database:
        migrate(database)
        yield database


@pytest.fixture
def other_writer(file: Path, database: Database) -> Iterator[sqlite3.Connection]:
    """A connection of another program; it writes between BEGIN IMMEDIATE and COMMIT."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        yield connection


def test_a_command_that_needs_no_database_is_answered_while_another_program_writes(
    database: Database, other_writer: sqlite3.Connection
) -> None:
    with GatewayThread(database) as gateway, BeanstalkConnection(gateway.address) as producer:
        producer.put(b"before")
        other_writer.execute("BEGIN IMMEDIATE")
        producer.send(b"put 0 0 60 5\r\nafter\r\n")
        with BeanstalkConnection(gateway.address) as other:
            assert other.ask(b"list-tube-used\r\n") == b"USING default\r\n"
            assert other.ask(b"watch a\r\n") == b"WATCHING 2\r\n"
        assert producer.answer_that_came() is None
        other_writer.execute("COMMIT")
        assert producer.receive().startswith(b"INSERTED ")


def test_nothing_waits_for_another_writer_that_is_asked_not_to(
    database: Database, other_writer: sqlite3.Connection
) -> None:
    other_writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(WriterBusy):
        database.run_group_at_once(lambda connection: pytest.fail("it has no lock"))
    other_writer.execute("COMMIT")
    with pytest.raises(WriterBusy):  # the other writer was met a moment ago: it gets its turn
        database.run_group_at_once(lambda connection: pytest.fail("it is not its turn"))
    assert database.run_group(lambda connection: "done") == "done"


def test_a_writer_of_the_same_process_is_not_waited_for(database: Database) -> None:
    def write_beside(_: object) -> None:
        with pytest.raises(WriterBusy):
            database.run_group_at_once(lambda connection: None)

    database.run(write_beside)
    assert database.run_group_at_once(lambda connection: "done") == "done"


def test_an_operation_that_fails_at_once_leaves_nothing_behind(database: Database) -> None:
    def insert_and_fail(connection: Connection) -> None:
        connection.exec_driver_sql("INSERT INTO queues (name) VALUES ('left')")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        database.run_group_at_once(insert_and_fail)
    count = "SELECT count(*) FROM queues"
    assert database.read(lambda connection: connection.exec_driver_sql(count).scalar_one()) == 0
