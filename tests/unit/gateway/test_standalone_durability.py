from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from peerd.gateway.standalone.durability import LogSynchronizer, StandaloneDatabase
from peerd.gateway.standalone.flags import parse_flags
from peerd.testing import eventually


class Disk:
    writes = 0
    error: OSError | None = None

    def __init__(self) -> None:
        self.written = threading.Event()

    def fdatasync(self, descriptor: int) -> None:
        os.fstat(descriptor)
        self.writes += 1
        self.written.set()
        if self.error is not None:
            raise self.error


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(os, "fdatasync", disk.fdatasync)
    return disk


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "jobs-wal").touch()
    return tmp_path / "jobs"


def no_error(error: OSError) -> None:
    raise AssertionError(error)


def started(file: Path, interval: float, on_error: Callable[[OSError], None] = no_error) -> LogSynchronizer:
    """A synchronizer that has a commit to write."""
    synchronizer = LogSynchronizer(file, interval, on_error)
    synchronizer.start()
    synchronizer.note_commit()
    return synchronizer


def pragmas(connection: sa.Connection) -> tuple[int, int, int]:
    names = ("synchronous", "wal_autocheckpoint", "journal_size_limit")
    synchronous, pages, limit = (connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in names)
    return synchronous, pages, limit


def change(connection: sa.Connection) -> int:
    connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS changes (number)")
    connection.exec_driver_sql("INSERT INTO changes VALUES (1)")
    return int(connection.exec_driver_sql("PRAGMA synchronous").scalar_one())


def test_commits_wait_for_the_disk_as_the_flags_say(tmp_path: Path) -> None:
    for number, (flags, synchronous) in enumerate(
        ((("-bx", "-f0"), 2), (("-bx", "-f50"), 1), (("-bx", "-F"), 0), (("-f0",), 0))
    ):
        file = tmp_path / f"jobs{number}?%20#"
        with closing(StandaloneDatabase(file, parse_flags([*flags, "-s40960"], ""), no_error)) as database:
            assert database.run(pragmas) == (synchronous, 10, 40960), flags
            later = 1 if synchronous == 2 else synchronous
            in_groups = [database.run_group(change, durable=durable) for durable in (True, False, True, False)]
            assert in_groups == [synchronous, later, synchronous, later], flags
        assert file.exists()


def test_a_commit_is_written_to_the_disk_within_the_interval(tmp_path: Path, disk: Disk) -> None:
    with closing(StandaloneDatabase(tmp_path / "jobs", parse_flags(["-bx", "-f1"], ""), no_error)) as database:
        database.run_group(change)
        eventually(lambda: disk.writes)
        before = disk.writes
        database.run_group(change, durable=False)
        eventually(lambda: disk.writes > before)


def test_many_commits_are_written_together_and_nothing_without_a_commit_or_a_log(file: Path, disk: Disk) -> None:
    started(file.with_name("no log"), 0.0).close()
    assert disk.writes == 0
    synchronizer = started(file, 3600.0)
    assert disk.written.wait(10)
    for _ in range(100):
        synchronizer.note_commit()
    assert disk.writes == 1
    synchronizer.close()
    assert disk.writes == 2
    synchronizer = started(file, 0.0)
    eventually(lambda: not synchronizer._is_dirty.is_set())
    assert disk.writes == 3
    synchronizer.close()


def test_an_error_of_the_disk_is_reported_and_the_write_is_repeated_without_another_commit(
    file: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerd.gateway.standalone.durability.REPEAT_AFTER", 0.01)
    errors: list[OSError] = []
    disk.error = OSError(5, "Input/output error")
    synchronizer = started(file, 0.0, errors.append)
    eventually(lambda: errors)
    failed, disk.error = disk.writes, None
    eventually(lambda: disk.writes > failed)
    synchronizer.close()
    assert all(error.errno == 5 for error in errors)


def test_a_log_that_cannot_be_opened_is_reported_and_written_later(
    file: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerd.gateway.standalone.durability.REPEAT_AFTER", 0.01)
    errors: list[OSError] = []
    refuses = True
    open_really = os.open

    def open_or_refuse(path: str, flags: int) -> int:
        if refuses:
            raise OSError(24, "Too many open files")
        return open_really(path, flags)

    monkeypatch.setattr(os, "open", open_or_refuse)
    synchronizer = started(file, 0.0, errors.append)
    eventually(lambda: errors)
    assert disk.writes == 0
    refuses = False
    assert disk.written.wait(10)
    synchronizer.close()
    assert {error.errno for error in errors} == {24}
