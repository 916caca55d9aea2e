"""What a run ran on, for whoever reads its figures later."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import msgspec


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine, and the versions that matter."""

    cores: int
    processor: str
    load: tuple[float, float, float]
    system: str
    python: str
    drivers: dict[str, str]
    revision: str

    def __str__(self) -> str:
        load = ", ".join(f"{one:.1f}" for one in self.load)
        return f"{self.cores} cores ({self.processor}), load {load}, Python {self.python}, {self.revision}"


def this_machine() -> Machine:
    """This one, now."""
    return Machine(
        cores=os.cpu_count() or 0,
        processor=_processor(),
        load=os.getloadavg(),
        system=platform.platform(),
        python=platform.python_version(),
        drivers={name: version(name) for name in ("SQLAlchemy", "PyMySQL", "psycopg")},
        revision=_revision(),
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(": ")[2]
    return platform.machine()


def _revision() -> str:
    """The commit, with a mark where the files differ from it."""
    command = ["git", "describe", "--always", "--dirty"]
    told = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return told.stdout.strip() or "no git"
