"""Plots of a run: tasks a second by batch, processes, nodes; a claim's time by the size of the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench.databases import VARIANTS
from bench.report import BenchRun
from bench.samples import Shape, percentile

Line = tuple[str, str, Sequence[float], Sequence[float]]
"""Its name, its style, and its points."""
STYLES: Final = {"bare": ":", "peerd": "-"}

WIDE: Final = 50
"""Times the least value that the greatest must be for a logarithmic axis."""


def draw(run: BenchRun, folder: Path) -> list[Path]:
    """Draw what the run has measured; the files."""
    import matplotlib as mpl  # noqa: PLC0415 - it takes a second

    mpl.use("agg")
    folder.mkdir(exist_ok=True)
    plots = {
        "batch": (_by_batch(run), "batch, or tasks at once", "tasks a second"),
        "processes": (_by_number(run, "processes"), "worker processes of a node", "tasks a second"),
        "nodes": (_by_number(run, "nodes"), "nodes, each with a worker process", "tasks a second"),
        "size": (_by_size(run), "done rows in the table", "ms for a claim of ten, p50"),
    }
    return [
        _draw(folder / f"performance-{name}.png", lines, across, up)
        for name, (lines, across, up) in plots.items()
        if lines
    ]


def _by_batch(run: BenchRun) -> Sequence[Line]:
    """The floor's claim + complete, and peerd's drain."""
    lines: list[Line] = []
    for database in run.versions:
        for by, measurement in (("bare", "claim + complete"), ("peerd", "drain")):
            batches = run.timings.batches(database, measurement, by)
            rates = [run.timings.rate(database, measurement, batch, by) or 0.0 for batch in batches]
            name = f"{database}, {'the bare driver' if by == 'bare' else 'peerd'}"
            lines += [(name, STYLES[by], batches, rates)] if batches else []
    return lines


def _by_number(run: BenchRun, measurement: str) -> list[Line]:
    lines: list[Line] = []
    for database in run.versions:
        numbers = run.timings.batches(database, measurement)
        rates = [run.timings.rate(database, measurement, number, "peerd") or 0.0 for number in numbers]
        lines += [(database, "-", numbers, rates)] if numbers else []
    return lines


def _by_size(run: BenchRun) -> list[Line]:
    return [line for database in run.versions for line in _sizes_of(run, database)]


def _sizes_of(run: BenchRun, database: str) -> Iterator[Line]:
    found = [one for one in run.samples if isinstance(one, Shape) and (one.database, one.shape) == (database, "done")]
    if found:
        yield database, "-", [one.rows for one in found], [percentile(one.milliseconds, 0.5) for one in found]


def _draw(file: Path, lines: Sequence[Line], across: str, up: str) -> Path:
    from matplotlib import pyplot as plt  # noqa: PLC0415 - it takes a second

    figure, axes = plt.subplots(figsize=(8.5, 4.0), layout="constrained")
    colours: dict[str, Any] = {name: f"C{number}" for number, name in enumerate(VARIANTS)}
    for name, style, xs, ys in lines:
        axes.plot(xs, ys, style, marker="o", markersize=4, color=colours[name.partition(",")[0]], label=name)
    axes.set_xscale("log")
    if max(max(ys) for _, _, _, ys in lines) > WIDE * min(min(ys) for _, _, _, ys in lines):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(visible=True, alpha=0.3)
    figure.legend(fontsize="small", loc="outside right upper")
    figure.savefig(file, dpi=90)
    plt.close(figure)
    return file
