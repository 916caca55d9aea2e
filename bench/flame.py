"""A flame graph of a draining worker process: ``python -m bench.flame [DATABASE …]``.

Sampled is what holds Python's lock: of one process no more than that runs at once, so it is what a drain ends at. Each
row is called by the one below it; the wider, the more samples.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.databases import VARIANTS, BenchDatabase, open_bench_database
from bench.draining import LONGEST, ROOT, fill
from bench.worker import DrainRequest

TASKS: Final = 100_000
AT_ONCE: Final = 100
DEFAULT: Final = ("mariadb", "postgresql", "sqlite")
PER_SECOND: Final = 500
"""Samples."""
NARROWEST: Final = 0.004
"""Of the whole; what is narrower is left out."""
DEEPEST: Final = 34
BEGINNINGS: Final = {
    "asyncio.events.Handle._run": "event loop, a step",
    "asyncio.base_events.BaseEventLoop._run_once": "event loop, between its steps",
    "concurrent.futures.thread._WorkerThread.run": "database thread",
    "futures.thread._WorkItem.run": "database thread",
    "threading.Thread.run": "thread",
}
"""What a stack is called that begins so."""
COLOURS: Final = {"peerd": "#f4a261", "sqlalchemy": "#e9c46a", "asyncio": "#8ecae6", "structlog": "#b5c99a"}
"""By the package; drivers and the rest are grey."""


class Frame(msgspec.Struct):
    """A function in one place of the stacks: its samples, and what it calls."""

    name: str
    samples: int = 0
    calls: dict[str, Frame] = msgspec.field(default_factory=dict)


def main() -> None:
    """Record and draw."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.flame")
    # Of a default list argparse would ask whether it is one of the choices itself.
    parser.add_argument(
        "databases", nargs="*", metavar="DATABASE", choices=[*VARIANTS, []], help=f"default: {' '.join(DEFAULT)}"
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "images", help="where the pictures go")
    arguments = parser.parse_args()
    for name in arguments.databases or DEFAULT:
        with open_bench_database(name) as opened:
            root = tree(record(opened))
        print(draw(root, f"{name}: a worker process drains", arguments.folder / f"flame-{name}.png"))


def record(opened: BenchDatabase) -> str:
    """Drain in a process that is sampled; its stacks, a line each, the outermost function first."""
    opened.empty()
    fill(opened, TASKS + 4 * AT_ONCE)
    order = DrainRequest(
        url=opened.url, synchronous=opened.variant.synchronous, count=AT_ONCE, warm=3 * AT_ONCE, tasks=TASKS
    )
    stacks = opened.folder / "stacks.txt"
    # Stopped for each sample, a process would be met in its system calls far more often than it is there.
    how = ["--gil", "--nonblocking", "--format", "raw", "--rate", str(PER_SECOND)]
    sampler = ["py-spy", "record", *how, "--output", str(stacks)]
    worker = [sys.executable, "-m", "bench.worker", msgspec.json.encode(order).decode()]
    program = Path(sys.executable).with_name("py-spy")
    subprocess.run(
        [str(program), *sampler[1:], "--", *worker], cwd=ROOT, capture_output=True, timeout=LONGEST, check=True
    )
    return stacks.read_text()


def tree(stacks: str) -> Frame:
    """The stacks, put together where they are the same; without the imports of the beginning."""
    root = Frame("all")
    for line in stacks.splitlines():
        path, _, number = line.rpartition(" ")
        if "_find_and_load" in path:
            continue
        at = root
        at.samples += int(number)
        for name in without_the_beginning(list(names(path))):
            at = at.calls.setdefault(name, Frame(name))
            at.samples += int(number)
    return root


def without_the_beginning(stack: Sequence[str]) -> Sequence[str]:
    """A stack of the event loop or of a thread, by what it is and not by how it was started."""
    for first, name in BEGINNINGS.items():
        if first in stack:
            return [name, *stack[stack.index(first) + 1 :]]
    return stack


def names(path: str) -> Iterator[str]:
    """The functions of a stack, without lines, and with the module instead of the file.

    >>> list(names("run (/usr/lib/python3.11/asyncio/runners.py:5);f (x/peerd/work/executor_slots.py:1)"))
    ['asyncio.runners.run', 'peerd.work.executor_slots.f']
    """
    for frame in path.split(";"):
        function, _, counter_index = frame.partition(" (")
        file = counter_index.rpartition(":")[0].removesuffix(".py")
        parts = [part for part in file.split("/") if part not in ("site-packages", "lib", "src")]
        start = parts.index("peerd") if "peerd" in parts else -2
        module = ".".join(parts[start:])
        yield f"{module}.{function}" if module else function


def draw(root: Frame, title: str, file: Path) -> Path:
    """Draw the tree, the outermost functions at the bottom."""
    import matplotlib as mpl  # noqa: PLC0415 - it takes a second

    mpl.use("agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - as above

    figure, axes = plt.subplots(figsize=(14, 8), layout="constrained")
    depth = max(_bar(axes, root, 0.0, 0, root.samples), 1)
    axes.set(xlim=(0, 1), ylim=(0, depth + 1), title=title, yticks=[], xlabel="share of the samples")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)
    plt.close(figure)
    return file


def _bar(axes: Any, frame: Frame, left: float, depth: int, whole: int) -> int:
    """Draw a function and what it calls; the depth that was reached."""
    width = frame.samples / whole
    if width < NARROWEST or depth > DEEPEST:
        return depth
    axes.barh(depth + 0.5, width, 0.94, left, color=_colour(frame.name), edgecolor="white", linewidth=0.4)
    text = f"{frame.name.rpartition('.')[2] if width < 0.12 else frame.name} {width:.0%}"
    if len(text) * 0.0052 < width:
        axes.text(left + 0.002, depth + 0.5, text, va="center", fontsize=6.5, clip_on=True)
    reached = depth
    for called in sorted(frame.calls.values(), key=lambda one: -one.samples):
        reached = max(reached, _bar(axes, called, left, depth + 1, whole))
        left += called.samples / whole
    return reached


def _colour(name: str) -> str:
    package: Mapping[str, str] = COLOURS
    return next((colour for part, colour in package.items() if part in name), "#d9d9d9")


if __name__ == "__main__":
    main()
