"""Picking up: how long a task waits on a node that has nothing else to do. Whole nodes run, with default settings."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.databases import BenchDatabase
from bench.jobs import IDLE, note, notes_in
from bench.node import running_node
from bench.samples import PickUp
from bench.sizes import Sizes
from peerd.testing import eventually

PATIENCE: Final = 60
"""Seconds until a node has come up and taken its first task."""
FROM_A_PROGRAM: Final = "peerd, from a program"
FROM_A_NODE: Final = "peerd, from another node"

WORKER: Final = """
[workers.bench]
tasks = "bench.jobs:bench"
[workers.bench.options]
notes = "{notes}"
"""
ASKER: Final = """
[workers.asker]
worker = "bench.jobs:PeriodicEnqueuer"
[workers.asker.options]
askings = "{askings}"
times = {times}
"""


def measure(target: BenchDatabase, sizes: Sizes) -> Iterator[PickUp]:
    """Enqueue single tasks at odd moments, from another node's process and then from a program that is on no node."""
    target.empty()
    notes = target.folder / "notes"
    notes.unlink(missing_ok=True)
    with running_node(target, "bench", WORKER.format(notes=notes)):
        target.client.enqueue(note.with_args(0))
        eventually(lambda: 0 in notes_in(notes), timeout=PATIENCE, message="the node has not come up")
        notes.unlink()
        for waited in _from_a_node(target, notes, sizes.pick_ups):
            yield PickUp(database=target.name, by=FROM_A_NODE, milliseconds=waited)
        for number in range(sizes.pick_ups):
            time.sleep(random.uniform(*IDLE))
            waited = _from_a_program(target, notes, 10_000 + number)
            yield PickUp(database=target.name, by=FROM_A_PROGRAM, milliseconds=waited)


def _from_a_node(target: BenchDatabase, notes: Path, times: int) -> list[float]:
    """The other node asks by itself; its first task is not counted."""
    askings = target.folder / "askings"
    askings.unlink(missing_ok=True)
    with running_node(target, "other", ASKER.format(askings=askings, times=times)):
        patience = PATIENCE + (times + 1) * 2 * IDLE[1]
        eventually(lambda: times in notes_in(notes), timeout=patience, message=f"not all of {times} tasks were run")
    asked, noted = notes_in(askings), notes_in(notes)
    return [(noted[number] - asked[number]) / 1e6 for number in range(1, times + 1)]


def _from_a_program(target: BenchDatabase, notes: Path, number: int) -> float:
    began = time.monotonic_ns()
    target.client.enqueue(note.with_args(number))
    eventually(lambda: number in notes_in(notes), timeout=PATIENCE, message=f"task {number} was not run")
    return (notes_in(notes)[number] - began) / 1e6
