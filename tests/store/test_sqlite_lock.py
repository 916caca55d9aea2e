"""Writers of SQLite wait for one another: no writer is overtaken for long, and none waits for ever."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from sqlalchemy.engine import Connection

from peerd.domain.errors import DatabaseUnavailable
from peerd.store.connection import database as store
from peerd.store.connection import sqlite
from peerd.store.connection.database import Database


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "peerd.sqlite"


@contextmanager
def hog(file: Path, first: float) -> Iterator[list[int]]:
    """Another writer, which holds the lock at first for so long, and then again and again with short pauses."""
    rounds = [0]
    begun, enough = threading.Event(), threading.Event()

    def live() -> None:
        with closing(sqlite3.connect(file, timeout=60, isolation_level=None)) as connection:
            held = first
            while not enough.is_set():
                connection.execute("BEGIN IMMEDIATE")
                begun.set()
                time.sleep(held)  # how long it writes is what is tested
                connection.execute("COMMIT")
                time.sleep(0.001)
                rounds[0] += 1
                held = 0.005

    thread = threading.Thread(target=live)
    thread.start()
    try:
        assert begun.wait(30)
        yield rounds
    finally:
        enough.set()
        thread.join()


def test_a_writer_that_has_waited_for_long_is_not_overtaken_again_and_again(file: Path) -> None:
    database = Database(f"sqlite:///{file}")
    database.run(lambda connection: connection.exec_driver_sql("CREATE TABLE t (n INTEGER)").rowcount)
    overtaken = 0
    for _ in range(5):
        with hog(file, first=0.4) as rounds:
            overtaken += database.run(lambda connection: rounds[0])
    database.close()
    assert overtaken < 110  # SQLite's own waiting, a poll each 100 ms, is overtaken 40 to 100 times in each of the five


def write(connection: Connection, number: int) -> None:
    connection.exec_driver_sql("INSERT INTO t VALUES (?)", (number,))


def test_writers_of_one_process_do_not_poll_for_the_lock_that_one_of_them_has(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "LOCK_RETRY_PAUSE", (600.0, 600.0))
    database, other_engine = Database(f"sqlite:///{file}"), Database(f"sqlite:///{file}")
    database.run(lambda connection: connection.exec_driver_sql("CREATE TABLE t (n INTEGER)").rowcount)
    begun, may_end = threading.Event(), threading.Event()

    def hold(connection: Connection) -> None:
        begun.set()
        assert may_end.wait(30)

    with ThreadPoolExecutor() as threads:
        held = threads.submit(database.run, hold)
        assert begun.wait(30)
        written = [threads.submit(one.run_short, write, 1) for one in (database, other_engine)]
        assert not any(one.done() for one in written)
        may_end.set()
        held.result(30)
        for one in written:
            one.result(30)
    database.close()
    other_engine.close()


def test_a_process_that_has_met_a_writer_of_another_one_leaves_room_between_its_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pause = Mock(return_value=0.0)
    monkeypatch.setattr(sqlite, "LOCK_RETRY_PAUSE", (0.0, 60.0))
    monkeypatch.setattr(random, "uniform", pause)
    busy = sqlite3.OperationalError("database is locked")
    busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
    attempt = Mock(side_effect=[busy, None])
    writers = sqlite.SqliteWriterLock()
    for _ in range(3):
        with writers.hold():
            pass
    assert not pause.called
    with closing(sqlite3.connect(":memory:")) as driver, writers.hold():
        writers.retry_while_locked(driver, attempt)
    assert pause.call_count == 1
    with writers.hold():
        assert pause.call_count == 2
    monkeypatch.setattr(sqlite, "YIELD_WITHIN", 0.0)
    with writers.hold():
        assert pause.call_count == 2


def test_the_transactions_of_a_group_pause_once_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    writers, now = sqlite.SqliteWriterLock(), 1000.0
    pauses: list[float] = []

    def hold_group() -> None:
        with writers.hold(turn=sqlite.TURN):
            pass

    def hold_at_once() -> None:
        with writers.hold(turn=sqlite.TURN, waits=False):
            pass

    monkeypatch.setattr(sqlite, "time", SimpleNamespace(monotonic=lambda: now, sleep=pauses.append))
    hold_at_once()
    writers.note_contention()
    with pytest.raises(sqlite.WriterBusy):
        hold_at_once()
    hold_group()
    assert len(pauses) == 1
    hold_group()
    hold_at_once()
    assert len(pauses) == 1
    now += sqlite.TURN
    with pytest.raises(sqlite.WriterBusy):
        hold_at_once()
    hold_group()  # long after the last transaction: the other processes have had their room
    hold_at_once()
    assert len(pauses) == 1


def test_a_lock_that_is_never_released_is_not_waited_for_for_ever(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT", 0.05)
    monkeypatch.setattr(store, "TRIES", 1)
    database = Database(f"sqlite:///{file}")
    database.run(lambda connection: connection.exec_driver_sql("CREATE TABLE t (n INTEGER)").rowcount)
    with hog(file, first=2.0):
        with pytest.raises(DatabaseUnavailable, match="locked"):
            database.run(lambda connection: None)
        with pytest.raises(DatabaseUnavailable, match="locked"):
            database.run_short(write, 1)
    assert database.read(lambda connection: connection.exec_driver_sql("SELECT n FROM t").all()) == []
    assert database.read(lambda connection: connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one()) == 50
    database.close()
