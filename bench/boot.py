"""``make bench-boot``: what it costs to boot a node of eight processes, and what stands in memory when it idles.

A node is brought up by ``peerd up`` again and again: agent, manager, four workers of tasks, a periodic one and a web
process. Processor time is that of a process from its first instruction until the whole node says that it is ready;
memory is read when it has idled for a while. With ``--of`` the interpreters of several checkouts take turns, each in
a database of its own: a slow minute of the machine touches them alike.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from bench.databases import VARIANTS, BenchDatabase, open_bench_database
from bench.machine import this_machine

READY: Final = "ready: 8 processes"
PATIENCE: Final = 60
"""Seconds for a boot."""
CODE: Final = """\
from peerd import Queue, Worker

queue = Queue("boot")

@queue.task
async def task() -> None: ...

class Loop(Worker):
    async def loop(self) -> None: ...

async def app(scope, receive, send): ...
"""
CONFIG: Final = """\
[node]
name = "boot"
[database]
url = "{url}"
[workers.tasks]
tasks = "boot_code:queue"
processes = 4
[workers.periodic]
worker = "boot_code:Loop"
[web.site]
app = "boot_code:app"
bind = "unix:site.sock"
"""
MiB: Final = 2**20


@dataclass(frozen=True, slots=True)
class ProcessCost:
    """Of one process: seconds of processor time until the node is ready, and memory when it idles, in MiB."""

    processor: float
    rss: float
    pss: float
    uss: float


@dataclass(frozen=True, slots=True)
class BootMeasurement:
    """One node: seconds until it is ready, processor time of the whole until then, and each process by its kind."""

    wall: float
    processor: float
    processes: Mapping[str, Sequence[ProcessCost]]


def main() -> None:
    """Run what the arguments say."""
    chosen = arguments(sys.argv[1:])
    print(f"boot of a node of eight processes, on {this_machine()}\n")
    for name in chosen.on:
        with open_bench_database(name) as one:
            boots = measured(one, chosen.of, chosen.rounds, chosen.idle)
        for python, found in boots.items():
            print(table(f"{name}, by {python}", found), flush=True)


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m bench.boot", description="What the boot of a node costs.")
    parser.add_argument("--on", nargs="+", choices=VARIANTS, default=["sqlite", "mariadb", "mysql", "postgresql"])
    parser.add_argument(
        "--of",
        nargs="+",
        type=os.path.abspath,
        metavar="PYTHON",
        default=[sys.executable],
        help="interpreters to compare",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--idle", type=float, default=4.0, help="seconds after which memory is read")
    return parser.parse_args(words)


def measured(on: BenchDatabase, pythons: Iterable[str], rounds: int, idle: float) -> dict[str, list[BootMeasurement]]:
    """So many boots of each, in turns. The first of each is not counted: files are read, and modules compiled."""
    found: dict[str, list[BootMeasurement]] = defaultdict(list)
    folders = {python: _project(on, f"boot{place}", python) for place, python in enumerate(pythons)}
    for number in range(rounds + 1):
        for python, folder in folders.items():
            boot = boot_of(folder, python, idle)
            if number:
                found[python].append(boot)
    return found


def _project(on: BenchDatabase, name: str, python: str) -> Path:
    """A project's folder, with a database that has its tables."""
    folder = on.folder / name
    folder.mkdir()
    (folder / "boot_code.py").write_text(CODE)
    (folder / "peerd.toml").write_text(CONFIG.format(url=on.extra_database(name)))
    command = [python, "-m", "peerd", "migrate"]
    subprocess.run(command, cwd=folder, env=_environment(), check=True, stdout=subprocess.DEVNULL)
    return folder


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PEERD_", "PYTHON"))}


def boot_of(folder: Path, python: str, idle: float) -> BootMeasurement:
    """Boot a node once, and end it."""
    log = folder / "log"
    began = time.monotonic()
    with _running(python, folder, log) as node:
        _wait_until_ready(node, log)
        wall = time.monotonic() - began
        master = psutil.Process(node.pid)
        children = master.children()
        processor = {one.pid: _processor_time(one) for one in (master, *children)}
        time.sleep(idle)
        costs = defaultdict(list)
        for one in (master, *children):
            memory = one.memory_full_info()
            sizes = (memory.rss / MiB, memory.pss / MiB, memory.uss / MiB)
            costs[_kind_of(one, master)].append(ProcessCost(processor[one.pid], *sizes))
    return BootMeasurement(wall, sum(processor.values()), costs)


def _processor_time(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _kind_of(process: psutil.Process, master: psutil.Process) -> str:
    if process == master:
        return "command and master"
    _, slot, _ = process.environ()["PEERD_PROCESS"].split("/")  # the mark of its master
    return slot.rstrip("0123456789").rstrip("-")


@contextmanager
def _running(python: str, folder: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("w") as output:
        node = subprocess.Popen([python, "-m", "peerd", "up"], cwd=folder, env=_environment(), stderr=output)
    try:
        yield node
    finally:
        node.send_signal(signal.SIGTERM)
        try:
            node.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            node.kill()
            node.wait()


def _wait_until_ready(node: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while READY not in log.read_text():
        if node.poll() is not None or time.monotonic() > until:
            raise TimeoutError(f"the node has not come up: {log.read_text()[-3000:]}")
        time.sleep(0.005)


def table(title: str, boots: Sequence[BootMeasurement]) -> str:
    """The medians of some boots, by kind of process; of several processes of a kind, their mean."""
    lines = [title, f"  {'':20}{'processor s':>12}{'RSS MiB':>10}{'PSS MiB':>10}{'USS MiB':>10}"]
    for kind in boots[0].processes:
        each = [_mean(boot.processes[kind]) for boot in boots]
        cost = ProcessCost(*(statistics.median(values) for values in zip(*map(_figures, each), strict=True)))
        number = f" × {len(boots[0].processes[kind])}" if len(boots[0].processes[kind]) > 1 else ""
        lines.append(f"  {kind + number:20}{cost.processor:12.2f}{cost.rss:10.1f}{cost.pss:10.1f}{cost.uss:10.1f}")
    processor = statistics.median(boot.processor for boot in boots)
    pss = statistics.median(sum(one.pss for each in boot.processes.values() for one in each) for boot in boots)
    lines.append(f"  {'all together':20}{processor:12.2f}{'':10}{pss:10.1f}")
    walls = [boot.wall for boot in boots]
    lines.append(f"  ready after {statistics.median(walls):.2f} s ({min(walls):.2f}–{max(walls):.2f})\n")
    return "\n".join(lines)


def _mean(costs: Sequence[ProcessCost]) -> ProcessCost:
    return ProcessCost(*(statistics.fmean(values) for values in zip(*map(_figures, costs), strict=True)))


def _figures(cost: ProcessCost) -> tuple[float, float, float, float]:
    return cost.processor, cost.rss, cost.pss, cost.uss


if __name__ == "__main__":
    main()
