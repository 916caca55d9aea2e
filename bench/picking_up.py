"""Picking up: how long a task waits on a node that has nothing else to do. A whole node runs, with default settings."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.databases import Stage
from bench.jobs import note
from bench.samples import PickUp
from bench.sizes import Sizes
from peerd.testing import eventually

ROOT = Path(__file__).parents[1]
IDLE = (2.0, 3.5)
"""Seconds of rest between two tasks, drawn evenly: the pauses between looks have grown to poll_every by then."""
PATIENCE = 60
"""Seconds until the node has come up and taken its first task."""

CONFIG = """
[node]
name = "bench"
[database]
url = "{url}"
[workers.bench]
tasks = "bench.jobs:bench"
[workers.bench.options]
notes = "{notes}"
"""


def measure(stage: Stage, sizes: Sizes) -> list[PickUp]:
    """Enqueue single tasks at odd moments; each handler notes when it began."""
    stage.empty()
    folder = stage.folder / "node"
    folder.mkdir()
    notes = folder / "notes"
    notes.touch()
    found: list[PickUp] = []
    with running_node(stage, folder, notes):
        _pick_up(stage, notes, 0)  # the node is up when it has run a task
        for number in range(1, sizes.pick_ups + 1):
            time.sleep(random.uniform(*IDLE))
            found.append(PickUp(database=stage.kind, milliseconds=_pick_up(stage, notes, number)))
    return found


def _pick_up(stage: Stage, notes: Path, number: int) -> float:
    began = time.monotonic_ns()
    stage.client.enqueue(note.with_args(number))
    picked_up = eventually(lambda: _noted(notes, number), timeout=PATIENCE, message=f"task {number} was not run")
    assert picked_up is not None
    return (picked_up - began) / 1e6


def _noted(notes: Path, number: int) -> int | None:
    for line in notes.read_text().splitlines():
        noted, _, moment = line.partition(" ")
        if int(noted) == number and moment:
            return int(moment)
    return None


@contextmanager
def running_node(stage: Stage, folder: Path, notes: Path) -> Iterator[None]:
    """`peerd up` for the time of the block, stopped in good order."""
    config = folder / "peerd.toml"
    config.write_text(CONFIG.format(url=stage.url, notes=notes))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PEERD_")}
    command = [sys.executable, "-m", "peerd.cli", "up", "--config", str(config)]
    with (folder / "log").open("w") as log:
        node = subprocess.Popen(
            command, cwd=folder, env=environment | {"PYTHONPATH": str(ROOT)}, stdout=log, stderr=log
        )
        try:
            yield
        except Exception as error:
            error.add_note(f"the node said:\n{(folder / 'log').read_text()[-3000:]}")
            raise
        finally:
            node.send_signal(signal.SIGTERM)
            try:
                node.wait(60)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
