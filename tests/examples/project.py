"""An example, copied into a folder of its own, and its node."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from peerd.supervision.control_client import MasterNotRunning, status
from peerd.testing import eventually

EXAMPLES = Path(__file__).parents[2] / "examples"

LEFT_BY_A_RUN = (".peerd", "peerd.sqlite*", "__pycache__", "drawn", "measured.txt")


class ExampleProject:
    """A copy of an example, with changes of the text of its peerd.toml, and variables for its programs."""

    def __init__(
        self, name: str, parent: Path, changes: Mapping[str, str] = MappingProxyType({}), **environment: str
    ) -> None:
        self.folder = parent / name
        self.log = parent / f"{name}.log"
        self.environment = {**os.environ, **environment}
        self.log.touch()
        shutil.copytree(EXAMPLES / name, self.folder, ignore=shutil.ignore_patterns(*LEFT_BY_A_RUN))
        config = self.folder / "peerd.toml"
        for before, after in changes.items():
            assert config.read_text().count(before) == 1, before
            config.write_text(config.read_text().replace(before, after))

    @contextmanager
    def program(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """A program that runs as long as the block does."""
        with self.log.open("ab") as out:
            command = [sys.executable, *arguments]
            program = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=out, stderr=out)
        try:
            yield program
        finally:
            program.terminate()
            program.wait(60)

    @contextmanager
    def node(self) -> Iterator[None]:
        """Its node, ready; at the end it stops gracefully."""
        with self.program("-m", "peerd", "up") as node:
            eventually(lambda: self.status().get("state") == "running" or node.poll() is not None, timeout=90)
            assert node.poll() is None, self.output()
            yield
        assert node.returncode == 0, self.output()

    def run(self, *arguments: str, program: str = "run.py") -> str:
        """Run its run.py, which must succeed; what it prints."""
        run = subprocess.run(
            [sys.executable, program, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert run.returncode == 0, f"{run.stderr}\n{self.output()}"
        return run.stdout

    def output(self) -> str:
        """What its programs have said so far."""
        return self.log.read_text(errors="replace")

    def status(self) -> dict[str, Any]:
        """What its node's master says; nothing where there is none yet."""
        for folder in self.folder.glob(".peerd/*"):
            with suppress(MasterNotRunning, OSError):
                return status(folder)
        return {}

    def pid(self, slot: str) -> int | None:
        """The process id of a slot of its node; None where none runs in it."""
        pids: dict[str, int | None] = {one["name"]: one["pid"] for one in self.status()["slots"]}
        return pids[slot]

    def kill(self, slot: str) -> int:
        """Kill a slot's process; its process id."""
        killed = self.pid(slot)
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        return killed
