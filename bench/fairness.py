"""Fairness: no task waits while one of several processes has a place free."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from typing import Final

from bench.databases import BenchDatabase
from bench.jobs import NAP, nap, notes_in
from bench.node import running_node
from bench.pick_up_latency import PATIENCE
from bench.samples import FairnessWait
from bench.sizes import Sizes
from peerd.testing import eventually

PROCESSES: Final = 4
BETWEEN: Final = (0.2, 0.4)
"""Seconds between two tasks: three of four places are taken on average, and now and then all of them."""
WORKERS: Final = """
[workers.bench]
tasks = "bench.jobs:bench"
processes = {processes}
[workers.bench.options]
notes = "{notes}"
"""


def measure(target: BenchDatabase, sizes: Sizes) -> Iterator[FairnessWait]:
    """Tasks of a second arrive one by one at a whole node with four processes, each with one place."""
    target.empty()
    notes = target.folder / "naps"
    notes.unlink(missing_ok=True)
    with running_node(target, "fair", WORKERS.format(processes=PROCESSES, notes=notes)):
        first = range(-1000 - PROCESSES, -1000)
        for number in first:
            target.client.enqueue(nap.with_args(number))
        eventually(lambda: len(notes_in(notes)) == 2 * PROCESSES, timeout=PATIENCE, message="the node has not come up")
        notes.unlink()
        enqueued: dict[int, int] = {}
        for number in range(1, sizes.naps + 1):
            time.sleep(random.uniform(*BETWEEN))
            target.client.enqueue(nap.with_args(number))
            enqueued[number] = time.monotonic_ns()  # from its commit on it can be seen
        eventually(
            lambda: len(notes_in(notes)) == 2 * sizes.naps,
            timeout=PATIENCE + sizes.naps * NAP,
            message=f"not all of {sizes.naps} tasks were run",
        )
    for waited in waits(enqueued, notes_in(notes)):
        yield FairnessWait(database=target.name, milliseconds=waited / 1e6)


def waits(enqueued: Mapping[int, int], noted: Mapping[int, int]) -> Iterator[int]:
    """For each task, how much of its waiting fell into a time in which fewer tasks ran than there are places.

    Args:
        enqueued: number → moment.
        noted: number → when it began, and -number → when it ended.
    """
    changes = sorted((moment, 1 if number > 0 else -1) for number, moment in noted.items())
    for number, since in enqueued.items():
        until = noted[number]
        running, free_since, waited = 0, since, 0
        for moment, change in changes:
            if running < PROCESSES and moment > since:
                waited += max(min(moment, until) - max(free_since, since), 0)
            running += change
            free_since = moment
            if moment >= until:
                break
        yield waited
