"""Draining: one worker process empties a full queue of tasks that do nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.databases import Stage
from bench.samples import Timing
from bench.sizes import Sizes

ROOT = Path(__file__).parents[1]
WARM = 3
"""Times as many tasks as run at once are drained before the clock runs."""
LONGEST = 300
"""Seconds."""


class Drained(msgspec.Struct):
    """What the worker process answers: seconds by the clock, and of its own time."""

    seconds: float
    cpu: float


def measure(stage: Stage, sizes: Sizes) -> Iterator[Timing]:
    """Fill the queue, let a fresh process drain it, see in the table that all of it is done."""
    for count, number in sizes.drain.items():
        stage.empty()
        warm = WARM * count
        for _ in range(0, number + warm, 1000):
            stage.floors["same"].insert(1000)
        stage.analyze()
        drained = drain(stage, count, warm, number)
        assert stage.count_done() >= number + warm
        yield Timing(
            database=stage.kind,
            measurement="drain",
            batch=count,
            by="peerd",
            tasks=number,
            seconds=drained.seconds,
            cpu=drained.cpu,
        )


def drain(stage: Stage, count: int, warm: int, number: int) -> Drained:
    """Run the worker process; it writes a line for each task into its log, as a node's workers do."""
    command = [sys.executable, "-m", "bench.worker", stage.url, str(count), str(warm), str(number)]
    with (stage.folder / "worker.log").open("w+") as log:
        ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, timeout=LONGEST, check=False)
        if ended.returncode != 0:
            log.seek(0)
            raise RuntimeError(f"the worker process failed:\n{log.read()[-2000:]}")
    return msgspec.json.decode(ended.stdout, type=Drained)
