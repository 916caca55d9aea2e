"""Transactions in quick succession, as durable as wanted, and single statements, executed without SQLAlchemy."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from peerd.domain.errors import DatabaseBusy, DatabaseUnavailable, RowLocked
from peerd.operate.client import Client
from peerd.runtime.observability.events import Event, EventBus
from peerd.shell import keep_heartbeat
from peerd.store.connection import database as database_module
from peerd.store.connection.database import Database
from peerd.store.connection.outages import OutageTracker
from peerd.store.connection.pools import SHORT_LOCK_TIMEOUT
from peerd.store.schema.tables import processes, tasks
from peerd.store.statements import DriverConnection
from tests.store.world import World, at_once
from tests.support.server_kinds import ON_SERVERS

pytestmark = pytest.mark.every_database

INSERT = "INSERT INTO tasks (queue) VALUES ('q')"


def insert(connection: sa.Connection) -> None:
    connection.exec_driver_sql(INSERT)


def insert_directly(connection: sa.Connection) -> None:
    DriverConnection(connection).exec_driver_sql(INSERT, ())


def insert_and_fail(connection: sa.Connection, how: Any) -> None:
    how(connection)
    raise ValueError("no")


def test_a_group_is_committed_when_it_returns_and_undone_when_it_raises(world: World) -> None:
    for durable in (True, False):
        for how in (insert, insert_directly):
            world.run_group(how, durable=durable)
            with pytest.raises(ValueError, match="no"):
                world.run_group(insert_and_fail, how, durable=durable)
    assert world.count() == 4

    def fail(connection: sa.Connection) -> None:
        insert_directly(connection)
        DriverConnection(connection).exec_driver_sql("SELECT nonsense FROM tasks", ())

    with pytest.raises(sa.exc.DBAPIError):
        world.run_group(fail)
    at_once([lambda: world.run_group(insert_directly)] * 8)
    assert world.count() == 12


@pytest.mark.parametrize("store", ON_SERVERS, indirect=True)
def test_a_group_does_not_wait_long_for_a_row(world: World) -> None:
    job_id = world.add()
    update = sa.update(tasks).where(tasks.c.id == job_id).values(priority=1)
    with world.locking(tasks, job_id), pytest.raises(RowLocked):
        world.run_group(lambda connection: connection.execute(update).rowcount)


@pytest.mark.parametrize("store", ON_SERVERS, indirect=True)
def test_a_connection_that_was_closed_while_it_was_idle_is_replaced(world: World) -> None:
    world.run_group(insert)
    own = "CONNECTION_ID()" if world.store.name == "mysql" else "pg_backend_pid()"
    process_id = world.run_group(lambda connection: connection.exec_driver_sql(f"SELECT {own}").scalar_one())
    end = f"KILL {process_id}" if world.store.name == "mysql" else f"SELECT pg_terminate_backend({process_id})"
    world.run(lambda connection: connection.exec_driver_sql(end).close())
    with pytest.raises(DatabaseUnavailable):  # it was in use a moment ago, so it may have been lost within the group
        world.run_group(insert)
    world.run_group(insert)
    assert world.count() == 2


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_a_commit_waits_for_the_disk_only_where_that_is_wanted(world: World) -> None:
    def setting(connection: sa.Connection) -> str:
        return str(connection.exec_driver_sql("SHOW synchronous_commit").scalar_one())

    assert [world.run_group(setting, durable=durable) for durable in (True, False, True)] == ["on", "off", "on"]


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Iterator[Database]:
    with closing(Database(f"sqlite:///{tmp_path}/groups.sqlite")) as database:
        database.run(lambda connection: connection.exec_driver_sql("CREATE TABLE tasks (queue TEXT)").close())
        yield database


def test_on_sqlite_commits_wait_for_the_disk_only_where_that_is_wanted(on_sqlite: Database) -> None:
    def setting(connection: sa.Connection) -> int:
        return int(connection.exec_driver_sql("PRAGMA synchronous").scalar_one())

    wanted = [True, False, False, True]
    assert [on_sqlite.run_group(setting, durable=durable) for durable in wanted] == [2, 1, 1, 2]
    assert on_sqlite.run(setting) == on_sqlite.run_short(setting) == 2


def test_on_sqlite_the_connection_is_kept_until_the_database_is_closed(on_sqlite: Database) -> None:
    def driver_of(connection: sa.Connection) -> int:
        return id(connection.connection.dbapi_connection)

    assert on_sqlite.run_group(driver_of) == on_sqlite.run_group(driver_of)
    with pytest.raises(ValueError, match="no"):
        on_sqlite.run_group(insert_and_fail, insert_directly)
    on_sqlite.close()
    on_sqlite.run_group(insert)
    assert on_sqlite.read(count) == 1


def count(connection: sa.Connection) -> int:
    return int(connection.exec_driver_sql("SELECT count(*) FROM tasks").scalar_one())


@pytest.mark.parametrize("how", [insert, insert_directly])
def test_on_sqlite_a_commit_that_fails_leaves_a_connection_that_works(on_sqlite: Database, how: Any) -> None:
    """As with a full disk, which SQLite may notice when it commits."""

    def insert_what_cannot_be_committed(connection: sa.Connection) -> None:
        how(connection)
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        connection.exec_driver_sql("INSERT INTO children VALUES (1)")

    def create(connection: sa.Connection) -> None:
        connection.exec_driver_sql("CREATE TABLE parents (id INTEGER PRIMARY KEY)")
        connection.exec_driver_sql("CREATE TABLE children (parent INTEGER REFERENCES parents (id))")

    on_sqlite.run_group(create)
    on_sqlite._on_sqlite._idle[0]._execute("PRAGMA foreign_keys = ON")
    with pytest.raises(sa.exc.IntegrityError, match="FOREIGN KEY"):
        on_sqlite.run_group(insert_what_cannot_be_committed)
    for _ in range(2):
        on_sqlite.run_group(how)
    assert on_sqlite.read(count) == 2


def test_on_sqlite_a_forked_process_opens_connections_of_its_own(on_sqlite: Database) -> None:
    on_sqlite.run_group(insert)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            on_sqlite.run_group(insert)
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    on_sqlite.run_group(insert)
    assert on_sqlite.read(count) == 3


def test_on_sqlite_a_forked_process_closes_no_connection_that_was_returned_during_the_fork(on_sqlite: Database) -> None:
    closed: list[object] = []
    for engine in on_sqlite.engines.distinct():
        for name in ("close", "close_detached"):
            sa.event.listen(engine, name, lambda *_: closed.append(1))

    def insert_while_a_fork_begins(connection: sa.Connection) -> None:
        insert(connection)
        on_sqlite.before_fork()

    on_sqlite.run_group(insert_while_a_fork_begins)
    closed.clear()
    on_sqlite.reset_after_fork()
    gc.collect()
    assert closed == [], "SQLite's mutex may be held by a thread that the child does not have: it would wait for ever"


SERVERS = pytest.mark.parametrize("store", ON_SERVERS, indirect=True)


def run_query(connection: sa.Connection, query: str) -> int:
    answer: int = DriverConnection(connection).exec_driver_sql(query, ()).scalar_one()
    return answer


def test_a_plain_enqueue_begins_no_transaction_and_one_with_a_key_does(world: World) -> None:
    begun: list[int] = []  # by thread: the bell has its own
    with closing(Database(world.store.url)) as database, Client(database) as client:
        for engine in database.engines.distinct():
            sa.event.listen(engine, "begin", lambda _: begun.append(threading.get_ident()))
        client.enqueue("q", unique="a")
        assert threading.get_ident() in begun
        begun.clear()
        client.enqueue("q", body={"a": 1}, start_in="1h", priority=3)
        assert threading.get_ident() not in begun
    assert world.count() == 2


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_an_enqueue_waits_for_a_locked_table_longer_than_a_short_operation_does(world: World) -> None:
    with Client(world.store) as client, world.store.engine.connect() as holder, ThreadPoolExecutor() as threads:
        client.enqueue("q")
        holder.exec_driver_sql("LOCK TABLE tasks IN EXCLUSIVE MODE")
        with pytest.raises(RowLocked):
            world.store.run_short(lambda connection: connection.exec_driver_sql(INSERT).rowcount)
        written = threads.submit(client.enqueue, "q")
        with pytest.raises(TimeoutError):
            written.result(1.5 * SHORT_LOCK_TIMEOUT)
        holder.rollback()
        assert written.result(30).created
    assert world.count() == 2


class SeenLock:
    """Ends the wait when an operation has met a locked row."""

    def __init__(self) -> None:
        self.is_met = threading.Event()

    def ended(self, outcome: str, seconds: float) -> None:
        if outcome == "locked":
            self.is_met.set()

    def repeated(self) -> None:
        pytest.fail("it is not repeated: the next heartbeat is written")


@SERVERS
async def test_a_heartbeat_that_meets_a_locked_row_reports_no_outage(world: World) -> None:
    reported: list[Event] = []
    process_id = world.claimer().process_id
    with closing(Database(world.store.url)) as database, world.locking(processes, process_id):
        database.observer = seen = SeenLock()
        events = EventBus(reported.append)
        outages = OutageTracker(events, time.monotonic)
        beating = asyncio.create_task(keep_heartbeat(database, process_id, outages, events, every=0.01))
        assert await asyncio.to_thread(seen.is_met.wait, 30)
        beating.cancel()
        await asyncio.wait([beating])
    assert not reported


@SERVERS
def test_a_lost_answer_is_reported_and_nothing_is_written_twice(world: World) -> None:
    tries = 0

    def write_and_lose_the_answer(connection: sa.Connection) -> None:
        nonlocal tries
        tries += 1
        driver = DriverConnection(connection)
        driver.exec_driver_sql(INSERT, ())
        if world.store.name == "postgresql":
            driver.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())", ())
        else:
            session = driver.exec_driver_sql("SELECT connection_id()", ()).scalar_one()
            world.sql(f"KILL {session}")
            driver.exec_driver_sql("SELECT 1", ())

    with pytest.raises(DatabaseUnavailable):
        world.store.run_short(write_and_lose_the_answer)
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

    def write(connection: sa.Connection, undone: int) -> int:
        nonlocal tries
        tries += 1
        return DriverConnection(connection).exec_driver_sql(undo if tries <= undone else INSERT, ()).rowcount

    assert world.store.run_short(write, undone=2) == 1
    assert (tries, world.count()) == (3, 1)
    tries = 0
    monkeypatch.setattr(database_module, "TRIES", 2)
    with pytest.raises(DatabaseBusy):
        world.store.run_short(write, undone=9)
    assert (tries, world.count()) == (2, 1)


def test_an_invalid_statement_raises_sqlalchemys_error_and_costs_no_connection(world: World) -> None:
    number = "SELECT connection_id()" if world.store.name == "mysql" else "SELECT pg_backend_pid()"
    same = "SELECT 1" if world.store.name == "sqlite" else number
    before = world.store.run_short(run_query, same)
    with pytest.raises(DBAPIError, match="nowhere") as caught:
        world.store.run_short(run_query, "INSERT INTO nowhere VALUES (1)")
    assert not caught.value.connection_invalidated
    assert world.store.run_short(run_query, same) == before


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
            world.store.run_short(lambda connection: DriverConnection(connection).exec_driver_sql(sleep, ()))
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, kept)
    answers = [world.store.run_short(run_query, f"SELECT {number}") for number in range(5)]
    assert answers == [0, 1, 2, 3, 4]
