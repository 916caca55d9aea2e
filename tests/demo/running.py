"""Demos in processes of their own, for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class RunningDemo:
    """A demo whose temporary folders are in `temporary`, and whose output goes to files."""

    process: subprocess.Popen[bytes]
    temporary: Path
    out_file: Path
    err_file: Path

    @property
    def out(self) -> str:
        return self.out_file.read_text()

    @property
    def err(self) -> str:
        return self.err_file.read_text()

    def processes(self) -> list[int]:
        """Those whose working directory is in the temporary folder, also after it was removed."""
        return processes_in(self.temporary)


@contextmanager
def running_demo(
    folder: Path, *options: str, command: tuple[str, ...] | None = None, variables: Mapping[str, str] | None = None
) -> Iterator[RunningDemo]:
    """Start a demo; at the end, kill it if it still runs."""
    temporary = folder / "temporary"
    temporary.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PEERD_")}
    environment |= {"TMPDIR": str(temporary), **(variables or {})}
    out_file, err_file = folder / "out", folder / "err"
    with out_file.open("wb") as out, err_file.open("wb") as err:
        process = subprocess.Popen(
            [*(command or (sys.executable, "-m", "peerd", "demo")), *options],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environment,
        )
    try:
        yield RunningDemo(process, temporary, out_file, err_file)
    finally:
        process.kill()
        process.wait()


def processes_in(folder: Path) -> list[int]:
    """The processes whose working directory is a folder, or below it."""
    found = []
    for process in psutil.process_iter():
        try:
            if f"{process.cwd()}/".startswith(f"{folder}/") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found
