"""Several worker processes on one database: do two bring twice as much, and what becomes of it with thirty?"""

from __future__ import annotations

import mmap
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import msgspec
import psutil

from bench.databases import BenchDatabase, register_bench_node
from bench.draining import LONGEST, ROOT, fill
from bench.samples import TimingSample
from bench.sizes import Sizes
from bench.worker import COUNTER, DrainRequest

COUNT: Final = 10
"""Tasks at once in each process."""
WARM: Final = 2
"""Times as many tasks as it runs at once has each ended before the clock runs: what is made once is made."""
SPARE: Final = 150
"""Times as many for each process are there beyond those that are measured: what the first ones end until the last is
warm, and what is left at the end."""


def measure_cores(target: BenchDatabase, sizes: Sizes) -> Iterator[TimingSample]:
    """One process and two, with tasks that compute for a millisecond."""
    for processes in (1, 2):
        yield measure(target, "cores", processes, sizes.spins, "spin", nodes=False)


def measure_processes(target: BenchDatabase, sizes: Sizes) -> Iterator[TimingSample]:
    """More and more processes of one node."""
    for processes in sizes.processes:
        yield measure(target, "processes", processes, sizes.fleet_tasks, "noop", nodes=False)


def measure_nodes(target: BenchDatabase, sizes: Sizes) -> Iterator[TimingSample]:
    """More and more nodes, each with a process."""
    for processes in sizes.nodes:
        yield measure(target, "nodes", processes, sizes.fleet_tasks, "noop", nodes=True)


def measure(target: BenchDatabase, what: str, processes: int, tasks: int, handler: str, *, nodes: bool) -> TimingSample:
    """Fill the queue, begin all at the same moment, and look at what they have ended together."""
    target.empty()
    fill(target, tasks + SPARE * COUNT * processes, handler)
    timing = TimingSample(database=target.name, measurement=what, batch=processes, by="peerd", tasks=0)
    with WorkerFleet(target, processes, nodes=nodes) as fleet:
        fleet.wait_until(lambda tallies: min(tallies) >= WARM * COUNT)
        before = fleet.tallies()
        psutil.cpu_times_percent()
        with timing.running():
            fleet.wait_until(lambda tallies: sum(tallies) >= sum(before) + tasks)
        after = fleet.tallies()
        timing.idle = psutil.cpu_times_percent().idle
    timing.tasks = sum(after) - sum(before)
    timing.shares = tuple(then - now for now, then in zip(before, after, strict=True))
    assert target.count_done() >= sum(after)
    return timing


class WorkerFleet:
    """Worker processes that began at the same moment, for the time of a block.

    Args:
        stage: whose queue they drain.
        processes: how many.
        nodes: whether each is of a node of its own.
    """

    def __init__(self, target: BenchDatabase, processes: int, *, nodes: bool) -> None:
        self._stage = target
        self._node = None if nodes else register_bench_node(target.database)
        self._file = target.folder / "tallies"
        self._file.write_bytes(bytes(COUNTER.size * processes))
        with self._file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), 0)
        self._processes = processes
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            workers = [self._start(counter_index, opened) for counter_index in range(self._processes)]
            for worker in workers:
                assert worker.stdout is not None
                assert worker.stdout.readline() == b"ready\n", self._said()
            for worker in workers:
                assert worker.stdin is not None
                worker.stdin.write(b"go\n")
                worker.stdin.flush()
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def tallies(self) -> Sequence[int]:
        """How many tasks each has ended."""
        return [
            COUNTER.unpack_from(self._memory, counter_index * COUNTER.size)[0]
            for counter_index in range(self._processes)
        ]

    def wait_until(self, so_far: Callable[[Sequence[int]], bool]) -> None:
        """Until what each has ended is as it should be."""
        deadline = time.monotonic() + LONGEST
        while not so_far(tallies := self.tallies()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no more was ended than {tallies}: {self._said()}")
            time.sleep(0.005)

    def _start(self, counter_index: int, opened: ExitStack) -> subprocess.Popen[bytes]:
        order = DrainRequest(
            url=self._stage.url,
            synchronous=self._stage.variant.synchronous,
            count=COUNT,
            node=self._node,
            tally=str(self._file),
            counter_index=counter_index,
        )
        log = opened.enter_context((self._stage.folder / f"worker-{counter_index}.log").open("w"))
        worker = subprocess.Popen(
            [sys.executable, "-m", "bench.worker", msgspec.json.encode(order).decode()],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
        )  # fmt: skip
        opened.callback(_end, worker)
        return worker

    def _said(self) -> str:
        logs = sorted(self._stage.folder.glob("worker-*.log"))
        return "\n".join(Path(log).read_text()[-500:] for log in logs[: self._processes])


def _end(worker: subprocess.Popen[bytes]) -> None:
    """Stop gracefully: its claims are released."""
    try:
        worker.communicate(timeout=30)  # ends its standard input
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
