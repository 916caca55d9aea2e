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
from typing import Literal

from bench.databases import Stage
from bench.jobs import feed, note
from bench.samples import PickUp
from bench.sizes import Sizes
from peerd import Client
from peerd.testing import eventually

ROOT = Path(__file__).parents[1]
IDLE = (2.0, 3.5)
"""Seconds of rest between two tasks, drawn evenly: the pauses between looks have grown to poll_every by then."""
PATIENCE = 60
"""Seconds until the node has come up and taken its first task."""

SECRET = "the bell of the benchmark"

CONFIG = """
[node]
name = "{name}"
[database]
url = "{url}"
[cluster]
secret = "{secret}"
[workers.{name}]
tasks = "bench.jobs:{name}"
[workers.{name}.options]
notes = "{notes}"
"""


def measure(stage: Stage, sizes: Sizes) -> list[PickUp]:
    """Enqueue single tasks at odd moments, here and on another node in turn; each handler notes when it began."""
    stage.empty()
    notes = stage.folder / "notes"
    notes.touch()
    found: list[PickUp] = []
    with (
        Client(stage.url, secret=SECRET) as client,
        running_node(stage, "bench", notes),
        running_node(stage, "feeding", notes),
    ):
        _from_another_node(client, notes, 1)  # both nodes are up when they have run a task
        for number in range(2, 2 * sizes.pick_ups + 2):
            time.sleep(random.uniform(*IDLE))
            by: Literal["client", "node"] = "node" if number % 2 else "client"
            pick_up = _from_another_node if by == "node" else _from_here
            milliseconds = pick_up(client, notes, number)
            found.append(PickUp(database=stage.kind, milliseconds=milliseconds, enqueued_by=by))
    return found


def _from_here(client: Client, notes: Path, number: int) -> float:
    began = time.monotonic_ns()
    client.enqueue(note.with_args(number))
    return (_wait_for(notes, number) - began) / 1e6


def _from_another_node(client: Client, notes: Path, number: int) -> float:
    client.enqueue(feed.with_args(number))
    return (_wait_for(notes, number) - _wait_for(notes, -number)) / 1e6


def _wait_for(notes: Path, number: int) -> int:
    moment = eventually(lambda: _noted(notes, number), timeout=PATIENCE, message=f"task {number} was not run")
    assert moment is not None
    return moment


def _noted(notes: Path, number: int) -> int | None:
    for line in notes.read_text().splitlines():
        noted, _, moment = line.partition(" ")
        if int(noted) == number and moment:
            return int(moment)
    return None


@contextmanager
def running_node(stage: Stage, name: str, notes: Path) -> Iterator[None]:
    """`peerd up` for the time of the block, stopped in good order."""
    folder = stage.folder / name
    folder.mkdir()
    config = folder / "peerd.toml"
    config.write_text(CONFIG.format(name=name, url=stage.url, notes=notes, secret=SECRET))
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
