"""Demos in processes of their own, for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
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
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if f"{process.cwd()}/".startswith(f"{self.temporary}/") and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process.pid)
        return found


@contextmanager
def running_demo(folder: Path, *options: str, variables: Mapping[str, str] | None = None) -> Iterator[RunningDemo]:
    """Start a demo; at the end, kill it if it still runs."""
    temporary = folder / "temporary"
    temporary.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PEERD_")}
    environment |= {"TMPDIR": str(temporary), **(variables or {})}
    out_file, err_file = folder / "out", folder / "err"
    with out_file.open("wb") as out, err_file.open("wb") as err:
        command = [sys.executable, "-m", "peerd", "demo", *options]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment)
    try:
        yield RunningDemo(process, temporary, out_file, err_file)
    finally:
        process.kill()
        process.wait()
