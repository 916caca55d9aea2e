"""The report of a run: one table for each database, ratios beside figures; and the raw samples as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from bench.machine import Machine
from bench.samples import By, PickUp, Timing, Timings, percentile
from bench.sizes import Sizes

RESULTS: Final = Path(__file__).parent / "results"
FLOOR_OF: Final = {"drain": "claim + complete"}
"""Measurements whose floor has another name."""
MEASUREMENTS: Final = ("enqueue", "claim", "complete", "claim + complete", "drain")
HEAD: Final = (
    "tasks a second", "batch", "bare floor", "our table", "peerd", "÷ bare", "÷ our table", "CPU µs/task",
)  # fmt: skip


class Run(msgspec.Struct, kw_only=True):
    """A whole run, as it is kept."""

    machine: Machine
    sizes: Sizes
    versions: Mapping[str, str]
    timings: list[Timing]
    pick_ups: list[PickUp]


def save(run: Run, folder: Path = RESULTS) -> Path:
    """Keep the raw samples; the file."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}.json"
    file.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1))
    return file


def report(run: Run) -> str:
    """The tables, for people; they are Markdown too."""
    parts = [f"{run.machine}; medians of {run.sizes.rounds} rounds"]
    for database, version in run.versions.items():
        parts += ["", f"### {database} {version}", ""]
        rows = list(_rows(database, Timings(run.timings)))
        parts += _aligned([HEAD, *rows]) if rows else []
        for by, words in (
            ("node", "the same, enqueued by another node's process"),
            ("client", "pick-up on an idle node"),
        ):
            of = [one for one in run.pick_ups if (one.database, one.enqueued_by) == (database, by)]
            parts += ["", _pick_up_words(words, [one.milliseconds for one in of])] if of else []
    return "\n".join(parts)


def _rows(database: str, timings: Timings) -> Iterator[Sequence[str]]:
    for measurement in MEASUREMENTS:
        floor = FLOOR_OF.get(measurement, measurement)
        for batch in timings.batches(database, measurement):

            def rate(by: By, of: str, batch: int = batch) -> str:
                return _number(timings.rate(database, of, batch, by))

            def ratio(by: By, of: str = floor, own: str = measurement, batch: int = batch) -> str:
                return _ratio(timings.ratio(database, own, batch, (of, by)))

            cpu = timings.cpu(database, measurement, batch, "peerd")
            yield (
                measurement, str(batch), rate("bare", floor), rate("same", floor), rate("peerd", measurement),
                ratio("bare"), ratio("same"), _number(cpu * 1e6 if cpu is not None else None),
            )  # fmt: skip


def _pick_up_words(what: str, waited: Sequence[float]) -> str:
    middle, late, worst = percentile(waited, 0.5), percentile(waited, 0.99), max(waited)
    return f"{what}: p50 {middle:.0f} ms, p99 {late:.0f} ms, worst {worst:.0f} ms, of {len(waited)}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        first, *numbers = (
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("| " + " | ".join([first, *numbers]) + " |")
    rule = ["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]
    return [lines[0], "|" + "|".join(rule) + "|", *lines[1:]]
