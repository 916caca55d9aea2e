"""Writers of SQLite wait for one another: nobody is overtaken for long, and nobody waits for ever."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy.engine import Connection

from peerd.domain.errors import DatabaseAway
from peerd.store import database as store
from peerd.store import sqlite_lock
from peerd.store.database import Database
from peerd.store.direct import Direct


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "peerd.sqlite"


@contextmanager
def hog(file: Path, first: float) -> Iterator[list[int]]:
    """Another writer, which holds the lock at first for so long, and then again and again with short pauses."""
    rounds = [0]
    begun, enough = threading.Event(), threading.Event()

    def live() -> None:
        with closing(sqlite3.connect(file, timeout=30, isolation_level=None)) as connection:
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
    assert overtaken < 110  # SQLite's own waiting, a look each 100 ms, is overtaken 40 to 100 times in each of the five


def write(connection: Direct, number: int) -> None:
    connection.exec_driver_sql("INSERT INTO t VALUES (?)", (number,))


def test_a_statement_alone_waits_for_its_turn_and_is_written_once(file: Path) -> None:
    database = Database(f"sqlite:///{file}")
    database.run(lambda connection: connection.exec_driver_sql("CREATE TABLE t (n INTEGER)").rowcount)
    with hog(file, first=0.4):
        for number in range(20):
            database.run_alone(write, number)
    written = database.read(lambda connection: connection.exec_driver_sql("SELECT n FROM t").scalars().all())
    assert written == list(range(20))
    database.close()


def test_writers_of_one_process_do_not_look_for_the_lock_that_one_of_them_has(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_lock, "LOCK_PAUSE", (600.0, 600.0))
    database, other_engine = Database(f"sqlite:///{file}"), Database(f"sqlite:///{file}")
    database.run(lambda connection: connection.exec_driver_sql("CREATE TABLE t (n INTEGER)").rowcount)
    begun, may_end = threading.Event(), threading.Event()

    def hold(connection: Connection) -> None:
        begun.set()
        assert may_end.wait(30)

    with ThreadPoolExecutor() as threads:
        held = threads.submit(database.run, hold)
        assert begun.wait(30)
        written = [threads.submit(one.run_alone, write, 1) for one in (database, other_engine)]
        assert not any(one.done() for one in written)
        may_end.set()
        held.result(30)
        for one in written:
            one.result(30)
    database.close()
    other_engine.close()


def write_again_and_again(file: Path, started: threading.Event, enough: threading.Event) -> int:
    """Two threads of this process that leave no gap between their writes."""
    database = Database(f"sqlite:///{file}")

    def go_on() -> int:
        written = 0
        while not enough.is_set():
            database.run_alone(write, 0)
            started.set()
            written += 1
        return written

    with ThreadPoolExecutor() as threads:
        counts = [threads.submit(go_on) for _ in range(2)]
    database.close()
    return sum(count.result() for count in counts)


def test_writers_of_one_process_leave_room_for_those_of_others(file: Path) -> None:
    database = Database(f"sqlite:///{file}")
    database.run(lambda connection: connection.exec_driver_sql("CREATE TABLE t (n INTEGER)").rowcount)
    database.close()
    script = (
        "import sys; from pathlib import Path; from tests.store.test_sqlite_lock import *; write_twenty(sys.argv[1])"
    )
    started, enough = threading.Event(), threading.Event()
    with ThreadPoolExecutor() as threads:
        ours = threads.submit(write_again_and_again, file, started, enough)
        assert started.wait(30)
        try:
            subprocess.run([sys.executable, "-c", script, str(file)], timeout=60, check=True)
        finally:
            enough.set()
        assert ours.result(30) > 20


def write_twenty(file: str) -> None:
    """In another process: each has its turn within a few of ours."""
    database = Database(f"sqlite:///{file}")
    overtaken = []
    for number in range(1, 21):
        before = database.read(lambda connection: connection.exec_driver_sql("SELECT count(*) FROM t").scalar_one())
        database.run_alone(write, number)
        after = database.read(lambda connection: connection.exec_driver_sql("SELECT count(*) FROM t").scalar_one())
        overtaken.append(after - before)
    database.close()
    assert sorted(overtaken)[10] < 100, overtaken


def test_a_lock_that_is_never_given_back_is_not_waited_for_for_ever(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_lock, "BUSY_TIMEOUT", 0.05)
    monkeypatch.setattr(store, "TRIES", 1)
    database = Database(f"sqlite:///{file}")
    database.run(lambda connection: connection.exec_driver_sql("CREATE TABLE t (n INTEGER)").rowcount)
    with hog(file, first=2.0):
        with pytest.raises(DatabaseAway, match="locked"):
            database.run(lambda connection: None)
        with pytest.raises(DatabaseAway, match="locked"):
            database.run_alone(write, 1)
    assert database.read(lambda connection: connection.exec_driver_sql("SELECT n FROM t").all()) == []
    assert database.read(lambda connection: connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one()) == 50
    database.close()
