from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest
import sqlalchemy as sa

from peerd.domain.task import BODY_LIMIT, NewTask
from peerd.gateway import standalone
from peerd.gateway.operations import Holder
from peerd.gateway.standalone import (
    LogSynchronizer,
    OwnNode,
    StandaloneDatabase,
    open_folder,
    open_folder_in_memory,
    remove_abandoned,
)
from peerd.gateway.standalone_start import ProgramExit, parse_flags
from peerd.store import enqueue
from peerd.store.connection.database import Database
from peerd.store.jobs import reserving
from peerd.store.nodes import find_node
from peerd.store.processes import list_processes
from peerd.testing import eventually
from peerd.testing.faulty_database import TemporaryDatabase

HOLD = """\
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def another_process_in(folder: Path) -> Iterator[None]:
    """A process that holds the lock of a folder."""
    command = [sys.executable, "-c", HOLD, str(folder / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield
        process.kill()


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(standalone, "MEMORY", tmp_path)
    monkeypatch.setattr(standalone, "MEMORY_NEEDED", 0)
    return tmp_path


def test_a_folder_that_another_process_serves_or_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with another_process_in(tmp_path), pytest.raises(ProgramExit, match="another process serves it") as refused:
        open_folder(str(tmp_path))
    assert refused.value.status == 10
    (tmp_path / "binlog.1").touch()
    with closing(open_folder(str(tmp_path))) as folder:
        assert (folder.database, folder.foreign_logs()) == (tmp_path / "peerd.sqlite", ["binlog.1"])
        folder.database.touch()
    assert folder.database.exists(), "it is kept"
    with pytest.raises(ProgramExit, match="No such file or directory") as refused:
        open_folder(str(tmp_path / "none"))
    assert refused.value.status == 10


def test_folders_of_processes_that_were_killed_are_removed_and_those_of_living_ones_are_not(memory: Path) -> None:
    living, killed, unlocked = (memory / f"peerd-beanstalkd-{name}" for name in ("living", "killed", "unlocked"))
    other = memory / "other"
    for folder in (living, killed, unlocked, other):
        folder.mkdir()
    (killed / "lock").touch()
    (killed / "peerd.sqlite").touch()
    (memory / "peerd-beanstalkd-link").symlink_to(other)
    with another_process_in(living):
        remove_abandoned(memory)
        assert {path.name for path in memory.iterdir()} == {living.name, "other", "peerd-beanstalkd-link"}
        with closing(open_folder_in_memory()) as opened:
            assert (living.exists(), opened.path.parent, opened.path.stat().st_mode & 0o777) == (True, memory, 0o700)
            opened.database.touch()
        assert not opened.path.exists()


def test_without_memory_the_folder_for_temporary_files_is_used(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = memory / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(temporary))
    for name, needed in (("none", 0), ("", 2**80)):
        monkeypatch.setattr(standalone, "MEMORY", memory / name)
        monkeypatch.setattr(standalone, "MEMORY_NEEDED", needed)
        with closing(open_folder_in_memory()) as opened:
            assert opened.path.parent == temporary


def test_a_folder_that_is_taken_for_abandoned_is_replaced(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process removes it between its creation and its lock."""
    made: list[str] = []
    make = tempfile.mkdtemp

    def make_and_lose_the_first(**given: str) -> str:
        made.append(make(**given))
        if len(made) == 1:
            Path(made[0]).rmdir()
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", make_and_lose_the_first)
    with closing(open_folder_in_memory()) as opened:
        assert str(opened.path) == made[1]


class Disk:
    writes = 0

    def __init__(self) -> None:
        self.written = threading.Event()

    def fdatasync(self, descriptor: int) -> None:
        os.fstat(descriptor)
        self.writes += 1
        self.written.set()


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
    eventually(lambda: disk.writes == 3)
    eventually(lambda: not synchronizer._is_dirty.is_set())
    assert disk.writes == 3
    synchronizer.close()


@pytest.mark.parametrize(
    ("call", "error"), [("fdatasync", OSError(5, "Input/output")), ("open", OSError(24, "Too many"))]
)
def test_an_error_of_the_disk_is_reported_and_the_write_repeated(
    file: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch, call: str, error: OSError
) -> None:
    monkeypatch.setattr("peerd.gateway.standalone.REPEAT_AFTER", 0.01)
    errors: list[OSError] = []
    with monkeypatch.context() as failing:
        failing.setattr(os, call, Mock(side_effect=error))
        synchronizer = started(file, 0.0, errors.append)
        eventually(lambda: errors)
        assert disk.writes == 0
    assert disk.written.wait(10), "without another commit"
    synchronizer.close()
    assert {one.errno for one in errors} == {error.errno}


NAME = "peerd-beanstalkd"


@pytest.fixture
def database() -> Iterator[Database]:
    with closing(TemporaryDatabase()) as database:
        yield database


def start(database: Database) -> tuple[OwnNode, Holder]:
    node = OwnNode()
    return node, database.run(node.register, 60)


def reserve(database: Database, holder: Holder) -> list[int]:
    return [job.id for job in database.run(reserving.reserve, holder.claimer(("default",)), 10, 60)]


def test_a_new_process_releases_earlier_reservations_and_renews_its_heartbeats(database: Database) -> None:
    node, killed = start(database)
    ids = [one.id for one in database.run(enqueue.put, [NewTask(queue="default", ttr=60) for _ in range(3)])]
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


MAX = BODY_LIMIT


def test_flags_are_read_as_beanstalkd_reads_them() -> None:
    for arguments, flags in (
        ([], {}), (["-l", "0.0.0.0", "-p", "11301"], {"address": "0.0.0.0", "port": "11301", "names_address": True}),
        (["-l0.0.0.0", "-p11301"], {"address": "0.0.0.0", "port": "11301", "names_address": True}),
        (["-l", "unix:/run/jobs.sock"], {"address": "unix:/run/jobs.sock", "names_address": True}),
        (["-b", "/var/jobs", "-f", "0"], {"folder": "/var/jobs", "sync_interval": 0.0}),
        (["-b", "/var/jobs", "-f200"], {"folder": "/var/jobs", "sync_interval": 0.2}),
        (["-f", "10", "-F"], {"sync_interval": None}), (["-F", "-f", "10"], {"sync_interval": 0.01}),
        (["-VV"], {"verbosity": 2}), (["-VFVz10"], {"verbosity": 2, "sync_interval": None, "max_job_size": 10}),
        (["-z", "0"], {"max_job_size": 0}), (["-z", str(MAX)], {"max_job_size": MAX}),
        (["-s", "4097"], {"log_size": 8192}), (["-u", "jobs"], {"user": "jobs"}), (["-b", "-F"], {"folder": "-F"}),
    ):  # fmt: skip
        assert vars(parse_flags(arguments, "1.13")) == {"warnings": [], **flags}, arguments
    for arguments, letters in ((["-c"], "-c"), (["-n"], "-n"), (["-cVn"], "-n")):
        assert letters in parse_flags(arguments, "1.13").warnings[-1]
    for size in ("-1", str(MAX + 1), str(2**30), "999999999999999999"):
        found = parse_flags(["-z", size], "1.13")
        assert (found.max_job_size, found.warnings) == (MAX, [f"maximum job size was set to {MAX}"])


def test_what_is_no_flag_is_refused_with_its_cause_and_the_usage() -> None:
    for arguments, problem in (
        (["-Q"], "unknown flag: -Q"), (["-VQ"], "unknown flag: -Q"), (["--help"], "unknown flag: --"),
        (["jobs"], "unknown argument: jobs"), (["-"], "unknown argument: -"), ([""], "unknown argument: "),
        (["-b"], "flag requires an argument: -b"), (["-Vp"], "flag requires an argument: -p"),
        (["-f", "x"], "invalid size: x"), (["-f", "1.5"], "invalid size: 1.5"), (["-z", "10b"], "invalid size: 10b"),
        (["-z", "--1"], "invalid size: --1"), (["-s", ""], "invalid size: "), (["-s", "-1"], "invalid size: -1"),
        (["-f", "9" * 400], "invalid size: 999"), (["-z", "\u0663"], "invalid size: \u0663"),
    ):  # fmt: skip
        with pytest.raises(ProgramExit) as refused:
            parse_flags(arguments, "1.13")
        assert refused.value.status == 5
        first, *usage = refused.value.text.splitlines()
        assert first.startswith(f"peerd-beanstalkd: {problem}")
        assert any(" -b DIR " in line for line in usage)
    for arguments, text in ((["-V", "-v"], "beanstalkd 1.13\n"), (["-h"], "usage: peerd-beanstalkd [FLAGS]\n")):
        with pytest.raises(ProgramExit) as printed:
            parse_flags(arguments, "1.13")
        assert printed.value.status == 0
        assert text in printed.value.text
