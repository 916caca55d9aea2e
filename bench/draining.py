"""Draining: one worker process empties a full queue of tasks that do nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.databases import BenchDatabase
from bench.samples import TimingSample
from bench.sizes import Sizes
from bench.worker import Drained, DrainRequest, Measures

ROOT = Path(__file__).parents[1]
WARM = 3
"""Times as many tasks as run at once are drained before the clock runs."""
BEYOND = 1
"""Times as many are left at the end: the queue is full until then, however far a worker looks ahead."""
LONGEST = 300
"""Seconds."""


def measure(target: BenchDatabase, sizes: Sizes) -> Iterator[TimingSample]:
    """Fill the queue, let a fresh process drain it, see in the table that all of it is done."""
    for count, number in sizes.drain.items():
        target.empty()
        fill(target, number + (WARM + BEYOND) * count)
        drained = drain(target, count, WARM * count, number)
        assert target.count_done() >= number + WARM * count
        yield TimingSample(
            database=target.name,
            measurement="drain",
            batch=count,
            by="peerd",
            tasks=number,
            seconds=drained.seconds,
            cpu=drained.cpu,
        )


def fill(target: BenchDatabase, number: int, name: str = "noop") -> None:
    """Enqueue at least so many tasks, as fast as the bare driver can."""
    for _ in range(0, number, 1000):
        target.floors["same"].insert(1000, name)
    target.analyze()


def drain(
    target: BenchDatabase,
    count: int,
    warm: int,
    number: int,
    measures: Measures = "nothing",
    *,
    statistics_every: float | None = None,
    keeps_lines: bool = False,
) -> Drained:
    """Run the worker process; it writes a line for each task into its log, as a node's workers do.

    With ``statistics_every`` it counts its attempts, and writes the counts every so many seconds.
    """
    order = DrainRequest(
        url=target.url,
        synchronous=target.variant.synchronous,
        count=count,
        warm=warm,
        tasks=number,
        statistics_every=statistics_every,
        keeps_lines=keeps_lines,
        measures=measures,
    )
    command = [sys.executable, "-m", "bench.worker", msgspec.json.encode(order).decode()]
    with (target.folder / "worker.log").open("w+") as log:
        ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, timeout=LONGEST, check=False)
        if ended.returncode != 0:
            log.seek(0)
            raise RuntimeError(f"the worker process failed:\n{log.read()[-2000:]}")
    return msgspec.json.decode(ended.stdout, type=Drained)
