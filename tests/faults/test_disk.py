"""A disk that becomes full, and is freed again."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.disk import SizeLimit, SmallFileSystem

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


class Writer:
    def __init__(self, file: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def write(self) -> int:
        """The error number, 0 for none."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "disk"
    folder.mkdir()
    return folder


@pytest.fixture
def writer(folder: Path) -> Iterator[Writer]:
    writer = Writer(folder / "peerd.sqlite")
    with writer.process:
        yield writer
        writer.process.kill()


def test_a_full_file_system_takes_nothing_until_it_is_freed(folder: Path) -> None:
    try:
        disk = SmallFileSystem(folder)
    except subprocess.CalledProcessError:
        pytest.skip("only root may mount a file system")
    try:
        writer = Writer(folder / "peerd.sqlite")
        with writer.process:
            assert writer.write() == 0
            disk.fill()
            assert writer.write() == errno.ENOSPC
            disk.free()
            assert writer.write() == 0
            writer.process.kill()
    finally:
        disk.close()
    assert list(folder.iterdir()) == []


def test_a_limit_on_files_holds_for_processes_that_run_already(folder: Path, writer: Writer) -> None:
    disk = SizeLimit(folder, lambda: [writer.process.pid])
    assert writer.write() == 0
    disk.fill()
    assert writer.write() == errno.EFBIG
    disk.free()
    assert writer.write() == 0
