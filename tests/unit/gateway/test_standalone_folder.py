from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from peerd.gateway.standalone import job_folder
from peerd.gateway.standalone.flags import ProgramExit
from peerd.gateway.standalone.job_folder import open_folder, open_folder_in_memory, remove_abandoned

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
    monkeypatch.setattr(job_folder, "MEMORY", tmp_path)
    monkeypatch.setattr(job_folder, "MEMORY_NEEDED", 0)
    return tmp_path


def test_a_folder_that_is_kept_has_the_file_and_outlives_its_process(tmp_path: Path) -> None:
    for name in ("binlog.2", "binlog.1", "lock"):
        (tmp_path / name).touch()
    with closing(open_folder(str(tmp_path))) as folder:
        assert folder.database == tmp_path / "peerd.sqlite"
        assert folder.foreign_logs() == ["binlog.1", "binlog.2"]
        folder.database.touch()
    assert folder.database.exists()


def test_a_folder_that_another_process_serves_or_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with another_process_in(tmp_path), pytest.raises(ProgramExit, match="another process serves it") as refused:
        open_folder(str(tmp_path))
    assert refused.value.status == 10
    open_folder(str(tmp_path)).close()
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
        with closing(open_folder_in_memory()) as folder:
            assert (living.exists(), folder.path.parent, folder.path.stat().st_mode & 0o777) == (True, memory, 0o700)
            folder.database.touch()
        assert not folder.path.exists()


def test_where_there_is_no_memory_for_files_the_folder_for_temporary_ones_is_used(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = memory / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(temporary))
    for name, needed in (("none", 0), ("", 2**80)):
        monkeypatch.setattr(job_folder, "MEMORY", memory / name)
        monkeypatch.setattr(job_folder, "MEMORY_NEEDED", needed)
        with closing(open_folder_in_memory()) as folder:
            assert folder.path.parent == temporary


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
    with closing(open_folder_in_memory()) as folder:
        assert str(folder.path) == made[1]
