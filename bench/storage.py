"""``make bench-storage``: files beside rsync and nginx, the same files in the same run.

Two nodes of peerd run on this machine, each with a disk below the same folder. Files are put to one of them, got from
it, and copied to the other by the tasks of the queue `storage`, as after the loss of a disk. In the same round rsync's
daemon gives as many files of the same sizes to rsync, and nginx with WebDAV takes and gives them, by the same client.

Peerd verifies all bytes by BLAKE3 and waits for the disk at each file; rsync and nginx do neither, so rsync is measured
with ``--fsync`` too, and so is a copy that is durable and nothing else (`bench.storage_floor`). On a tmpfs (``--folder
/dev/shm``) the disk costs nothing, and what remains is the programs.

``--memory`` measures the peak of the memory of the processes with a small and with a large file.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from bench.databases import SECRET, VARIANTS, open_bench_database
from bench.gateway import ratio
from bench.machine import this_machine
from bench.markdown_table import aligned
from bench.storage_floor import copy_bare, hash_rate
from bench.storage_servers import BenchStorage, nginx, rsync, rsync_daemon, two_nodes, versions
from peerd.domain.units import format_size

ROOT: Final = Path(__file__).parents[1]
KiB: Final = 1024
MiB: Final = 1024 * KiB
GiB: Final = 1024 * MiB
LOAD_TIMEOUT: Final = 900.0
MEMORY_SIZES: Final = (64 * MiB, 4 * GiB)


@dataclass(frozen=True, slots=True)
class FileShape:
    """Which files are put, got and copied.

    Attributes:
        name: as the table calls it.
        files: how many.
        size: bytes of each.
        connections: of the client, at once.
    """

    name: str
    files: int
    size: int
    connections: int


SHAPES: Final = (
    FileShape("1 × 1 GiB", 1, GiB, 1),
    FileShape("10,000 × 10 KiB", 10_000, 10 * KiB, 8),
)
COPY, PUT, GET = "copy", "put", "get"
OURS: Final = "peerd"
BARE: Final = "bare, durable"
OTHERS: Final = {COPY: ("rsync", "rsync --fsync", BARE), PUT: ("nginx",), GET: ("nginx",)}
WITHOUT_GOAL: Final = frozenset({"rsync --fsync", BARE})
GOALS: Final = {COPY: 0.9, PUT: 0.7, GET: 0.7}
Results = dict[tuple[str, str], dict[str, list[float]]]
"""what and shape → program → bytes per second in each round."""


def main() -> int:
    """Run what the arguments say."""
    chosen = arguments(sys.argv[1:])
    folder = Path(tempfile.mkdtemp(prefix="peerd-bench-storage-", dir=chosen.folder))
    try:
        with open_bench_database(chosen.on) as target, two_nodes(target, folder) as storage:
            print(
                f"{this_machine()}\n{versions()}; {chosen.on}; below {folder.parent}: {file_system(folder)}\n"
                f"BLAKE3 by one thread: {rate(hash_rate())}",
                flush=True,
            )
            if chosen.rounds:
                shapes = [scaled(shape, chosen.scale) for shape in SHAPES]
                print("\n".join(table(measure(storage, folder, shapes, chosen.rounds))), flush=True)
            if chosen.memory:
                print("\n".join(["", *memory_table(storage, MEMORY_SIZES)]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m bench.storage", description="Files, beside rsync and nginx.")
    parser.add_argument("--on", choices=VARIANTS, default="sqlite", help="the database of the catalogue")
    parser.add_argument("--folder", type=Path, help="below which all files are; default: that of temporary files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the large file and the number of small ones")
    parser.add_argument("--memory", action="store_true", help="measure the memory too, with files of 64 MiB and 4 GiB")
    return parser.parse_args(words)


def scaled(shape: FileShape, scale: float) -> FileShape:
    """As the shape, with fewer or smaller files.

    >>> scaled(SHAPES[0], 0.5).name, scaled(SHAPES[1], 0.01).name
    ('1 × 512.0 MiB', '100 × 10.0 KiB')
    """
    if scale == 1.0:
        return shape
    size = int(shape.size * scale) if shape.files == 1 else shape.size
    files = max(1, int(shape.files * scale)) if shape.files > 1 else 1
    return FileShape(f"{files:,} × {format_size(size)}", files, size, shape.connections)


def measure(storage: BenchStorage, folder: Path, shapes: Sequence[FileShape], rounds: int) -> Results:
    """All shapes in each round, the programs in turns."""
    results: Results = defaultdict(lambda: defaultdict(list))
    for number in range(rounds):
        for shape in shapes:
            print(f"round {number + 1} of {rounds}: {shape.name}", file=sys.stderr, flush=True)
            steps = [of_peerd, of_nginx, of_rsync]
            for step in steps[number % 3 :] + steps[: number % 3]:
                for (what, program), seconds in step(storage, folder, shape).items():
                    results[what, shape.name][program].append(shape.files * shape.size / seconds)
    return results


def of_peerd(storage: BenchStorage, _: Path, shape: FileShape) -> dict[tuple[str, str], float]:
    """Seconds of putting, getting and copying."""
    put = load(storage.first.url, PUT, shape, SECRET)
    get = load(storage.first.url, GET, shape, SECRET)
    copy = storage.copy_all()
    storage.remove_all()
    return {(PUT, OURS): put, (GET, OURS): get, (COPY, OURS): copy}


def of_nginx(_: BenchStorage, folder: Path, shape: FileShape) -> dict[tuple[str, str], float]:
    """Seconds of putting and getting."""
    with nginx(folder) as url:
        seconds = {(what, "nginx"): load(url, what, shape, "") for what in (PUT, GET)}
    shutil.rmtree(folder / "nginx")
    return seconds


def of_rsync(_: BenchStorage, folder: Path, shape: FileShape) -> dict[tuple[str, str], float]:
    """Seconds of copying, by rsync and with nothing but what a durable copy needs."""
    source = folder / "source"
    make_files(source, shape)
    seconds: dict[tuple[str, str], float] = {}
    with rsync_daemon(folder, source) as url:
        for program in OTHERS[COPY]:
            target = folder / "target"
            target.mkdir()
            os.sync()
            by_bare = program == BARE
            seconds[COPY, program] = copy_bare(source, target) if by_bare else rsync(url, target, *program.split()[1:])
            shutil.rmtree(target)
    for one in (source, folder / "rsyncd"):
        shutil.rmtree(one)
    return seconds


def make_files(folder: Path, shape: FileShape) -> None:
    """Files of these sizes, a thousand in a folder."""
    block = os.urandom(min(MiB, shape.size))
    for number in range(shape.files):
        path = folder / f"{number // 1000:03}" / f"{number:06}"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as opened:
            for _ in range(shape.size // len(block)):
                opened.write(block)


def load(url: str, what: str, shape: FileShape, secret: str) -> float:
    """Run the client to its end; the seconds that it has measured."""
    os.sync()
    words = [url, what, str(shape.files), str(shape.size), str(shape.connections), secret]
    command = [sys.executable, "-m", "bench.storage_load", *words]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=LOAD_TIMEOUT, check=True)
    return float(done.stdout)


def table(results: Results) -> list[str]:
    """Medians over the rounds, and ratios within them."""
    rows = [["", "peerd", "beside", "", "ratio"]]
    for (what, shape), by_program in sorted(results.items()):
        for program in OTHERS[what]:
            if program in by_program:
                ours, theirs = by_program[OURS], by_program[program]
                one = ratio(ours, theirs)
                mark = "" if program in WITHOUT_GOAL else " ✓" if one >= GOALS[what] else " ✗"
                rows.append(
                    [f"{what}, {shape}", rate(median(ours)), program, rate(median(theirs)), f"{one:.2f} ×{mark}"]
                )
    return aligned(rows)


def rate(value: float) -> str:
    """Bytes in a second.

    >>> rate(1.5 * MiB)
    '1.5 MiB/s'
    """
    return f"{format_size(int(value))}/s"


def memory_table(storage: BenchStorage, sizes: Sequence[int]) -> list[str]:
    """The peak of the memory of each process, while a file of each size was put, got and copied."""
    peaks = [memory_of(storage, size) for size in sizes]
    names = sorted(set.intersection(*map(set, peaks)))
    heads = ["peak of the memory", *map(format_size, sizes)]
    return aligned([heads, *([name, *(format_size(one[name]) for one in peaks)] for name in names)])


def memory_of(storage: BenchStorage, size: int) -> dict[str, int]:
    """Bytes of each process at its peak while one file is put, got, and copied."""
    processes = {
        f"{node.name}: {slot}": process.pid
        for node in (storage.first, storage.second)
        for slot, process in node.processes().items()
    }
    for pid in processes.values():
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak is that from now on
    of_peerd(storage, Path(), FileShape("", 1, size, 1))
    return {name: peak_of(pid) for name, pid in processes.items()}


def peak_of(pid: int) -> int:
    """The peak of the resident memory of a process, in bytes."""
    [line] = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmHWM:")]
    return int(line.split()[1]) * KiB


def file_system(folder: Path) -> str:
    """Its type."""
    command = ["stat", "-f", "-c", "%T", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
