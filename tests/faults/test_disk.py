"""A disk that becomes full, and is freed again."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.disk import SizeLimit, SmallFileSystem

pytestmark = pytest.mark.slow
WRITER = """
import sys
for line in sys.stdin:
    try:
        with open(sys.argv[1], "ab", buffering=0) as file:
            file.write(bytes(8192))
        print(0, flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""
"""Appends two whole pages to a file at each line that it reads, and says how that went."""


@contextmanager
def writing(file: Path) -> Iterator[tuple[int, Callable[[], int]]]:
    """A process that appends to the file: its id, and what lets it do so and gives the error number, 0 for none."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told, answers = process.stdin, process.stdout

        def write() -> int:
            print("go", file=told, flush=True)
            return int(answers.readline())

        yield process.pid, write
        process.kill()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


def test_a_full_file_system_takes_nothing_until_it_is_freed(folder: Path) -> None:
    try:
        disk = SmallFileSystem(folder)
    except subprocess.CalledProcessError:
        pytest.skip("only root may mount a file system")
    try:
        with writing(folder / "peerd.sqlite") as (_, write):
            assert write() == 0
            disk.fill()
            assert write() == errno.ENOSPC
            disk.free()
            assert write() == 0
    finally:
        disk.close()
    assert list(folder.iterdir()) == []


def test_a_limit_on_files_holds_for_processes_that_run_already(folder: Path) -> None:
    with writing(folder / "peerd.sqlite") as (pid, write):
        disk = SizeLimit(folder, lambda: [pid])
        assert write() == 0
        disk.fill()
        assert write() == errno.EFBIG
        disk.free()
        assert write() == 0
