"""The report of a run: tables of figures and ratios, as Markdown; and the raw samples as JSON."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from bench.databases import VARIANTS
from bench.goals import GOALS
from bench.machine import Machine
from bench.markdown_table import aligned
from bench.peer_measurements import REDIS
from bench.samples import (
    ClaimsDuringChore,
    FairnessWait,
    Idle,
    MeasurementFailure,
    PickUp,
    Sample,
    Shape,
    Timings,
    TimingSample,
    percentile,
    short,
)  # fmt: skip
from bench.sizes import Sizes

RESULTS: Final = Path(__file__).parent / "results"
MEASUREMENTS: Final = {
    "enqueue": "enqueue", "claim": "claim", "complete": "complete", "claim + complete": "claim + complete",
    "drain": "claim + complete",
}  # fmt: skip
"""What is measured, and what its floor is called."""
FLOOR_HEAD: Final = (
    "tasks a second", "batch", "bare floor", "our table", "peerd", "÷ bare (least–most)", "÷ our table", "CPU µs/task",
)  # fmt: skip
OURS: Final = frozenset({"bare", "same", "peerd"})
FAR: Final = 1000
"""More rounds than a run has."""
COUNT: Final = 100
"""Tasks at once with which peerd stands beside its peers."""


class BenchRun(msgspec.Struct, kw_only=True):
    """A whole run, as it is kept."""

    machine: Machine
    sizes: Sizes
    versions: Mapping[str, str]
    samples: list[Sample]

    @property
    def timings(self) -> Timings:
        """Those of the samples that are rates."""
        return Timings(one for one in self.samples if isinstance(one, TimingSample))


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for a server."""
    return tempfile.TemporaryDirectory(prefix="peerd-bench-")


def save(run: BenchRun, folder: Path = RESULTS) -> Path:
    """Keep the raw samples; the file."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}.json"
    file.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1))
    return file


def joined(files: Sequence[Path]) -> BenchRun:
    """Runs that were kept, as one: each measured other things, or the same once more."""
    runs = [msgspec.json.decode(file.read_bytes(), type=BenchRun) for file in files]
    for number, run in enumerate(runs):
        for sample in run.samples:
            if isinstance(sample, TimingSample):
                sample.round += number * FAR  # rounds of two runs were not beside each other
    return BenchRun(
        machine=runs[0].machine,
        sizes=runs[0].sizes,
        versions={name: version for run in runs for name, version in run.versions.items()},
        samples=[sample for run in runs for sample in run.samples],
    )


def report(run: BenchRun) -> str:
    """The tables, for people; they are Markdown too."""
    parts = [f"{run.machine}; medians of {run.sizes.rounds} rounds"]
    sections = [("What must be shown", _goals(run))]
    for database, version in run.versions.items():
        sections += [
            (f"{VARIANTS[database].title} ({version})", _beside_the_floor(database, run.timings)),
            (f"{VARIANTS[database].title}: beside its peers", _beside_peers(database, run.timings)),
        ]
    sections += [
        ("Picking up on an idle worker", _pick_ups(run)),
        ("More processes, more nodes", _fleets(run.timings)),
        ("A claim of ten by what else is in the table", _shapes(run)),
        ("Claims beside the manager's chores", _chores(run)),
        ("Fairness and rest", _rest(run)),
        ("Not measured", _failures(run)),
    ]
    for title, lines in sections:
        if lines:
            parts += ["", f"### {title}", "", *lines]
    return "\n".join(parts)


def _goals(run: BenchRun) -> list[str]:
    rows = [(goal.what, goal.wanted, goal.measured(run.samples)) for goal in GOALS]
    return aligned([("", "wanted", "measured (least–most)"), *rows], left=3)


def _beside_the_floor(database: str, timings: Timings) -> list[str]:
    rows = list(_floor_rows(database, timings))
    return aligned([FLOOR_HEAD, *rows]) if rows else []


def _floor_rows(database: str, timings: Timings) -> Iterator[Sequence[str]]:
    for measurement, floor in MEASUREMENTS.items():
        for batch in timings.batches(database, measurement):
            cpu = timings.cpu(database, measurement, batch, "peerd")
            ratios = [
                timings.ratio((database, measurement, batch, "peerd"), (database, floor, batch, by))
                for by in ("bare", "same")
            ]
            yield (
                measurement,
                str(batch),
                _number(timings.rate(database, floor, batch, "bare")),
                _number(timings.rate(database, floor, batch, "same")),
                _number(timings.rate(database, measurement, batch, "peerd")),
                str(ratios[0] or ""),
                short(ratios[1].middle) if ratios[1] else "",
                _number(cpu * 1e6 if cpu is not None else None),
            )


def _beside_peers(database: str, timings: Timings) -> list[str]:
    """Peerd's rate by theirs, with those on Redis below: how much faster it is than each of them."""
    if not any(where == database and by not in OURS for where, _, _, by in timings):
        return []
    ours = {("enqueue", 1): 1, ("enqueue", 1000): 1000, ("drain", 0): COUNT}
    rows = []
    for theirs in timings:
        where, measurement, batch, by = theirs
        if where not in {database, REDIS} or by in OURS or measurement not in {"enqueue", "drain"}:
            continue
        own = ours[measurement, 0 if measurement == "drain" else batch]
        ratio = timings.ratio((database, measurement, own, "peerd"), theirs)
        if ratio is not None:
            name = f"{by}, on Redis" if where == REDIS else by
            how = "drain" if measurement == "drain" else "enqueue, singly" if batch == 1 else "enqueue, together"
            rows.append((how, name, _number(timings.rate(*theirs)), str(ratio)))
    head = ("tasks a second", "peer", "its rate", "peerd ÷ it (least–most)")
    return aligned([head, *sorted(rows, key=lambda row: row[0])], left=2) if rows else []


def _pick_ups(run: BenchRun) -> list[str]:
    waited: dict[tuple[str, str], list[float]] = {}
    for one in run.samples:
        if isinstance(one, PickUp):
            waited.setdefault((one.by, one.database), []).append(one.milliseconds)
    rows = [
        (by, database, str(len(found)), *(short(value) for value in (*_percentiles(found), max(found))))
        for (by, database), found in waited.items()
    ]
    head = ("milliseconds", "on", "tasks", "p50", "p99", "worst")
    return aligned([head, *rows], left=2) if rows else []


def _fleets(timings: Timings) -> list[str]:
    rows = []
    for database, measurement, number, by in timings:
        if measurement in {"cores", "processes", "nodes"}:
            found = timings.of((database, measurement, number, by))
            what = "processes, 1 ms of CPU in each task" if measurement == "cores" else measurement
            ratio = timings.ratio((database, measurement, number, by), (database, measurement, 1, by))
            shares = found[-1].shares
            idle = median(one.idle for one in found if one.idle is not None)
            rows.append((
                what, database, str(number), _number(median(one.rate for one in found)), str(ratio or ""),
                f"{idle:.0f} %", f"{min(shares) / (sum(shares) / len(shares)):.2f}",
            ))  # fmt: skip
    head = ("", "on", "number", "tasks a second", "÷ one (least–most)", "processors idle", "least share ÷ mean")
    return aligned([head, *rows], left=2) if rows else []


def _shapes(run: BenchRun) -> list[str]:
    rows = []
    for one in run.samples:
        if isinstance(one, Shape):
            own, empty = _percentiles(one.milliseconds), _percentiles(one.empty_milliseconds)
            reads = [
                f"{_read(mine)} / {_read(base)}"
                for mine, base in (
                    (one.read.rows, one.empty_read.rows),
                    (one.read.locks, one.empty_read.locks),
                    (one.read.pages, one.empty_read.pages),
                )
            ]
            times = (f"{short(mine)} / {short(base)}" for mine, base in zip(own, empty, strict=True))
            rows.append((one.shape, one.database, f"{one.rows:,}", *reads, *times))
    head = ("that / an empty table", "on", "rows", "rows read", "row locks", "pages", "p50 ms", "p99 ms")
    return aligned([head, *rows], left=2) if rows else []


def _chores(run: BenchRun) -> list[str]:
    rows = []
    for one in run.samples:
        if isinstance(one, ClaimsDuringChore) and one.milliseconds:
            times = zip(_percentiles(one.before_milliseconds), _percentiles(one.milliseconds), strict=True)
            shown = (f"{short(before)} → {short(during)}" for before, during in times)
            rate = f"{one.rows / one.seconds:,.0f}"
            rows.append((one.chore, one.database, f"{one.rows:,}", rate, *shown, short(max(one.milliseconds))))
    head = ("claims of ten: before → beside", "on", "rows", "rows a second", "p50 ms", "p99 ms", "worst ms")
    return aligned([head, *rows], left=2) if rows else []


def _rest(run: BenchRun) -> list[str]:
    waited: dict[str, list[float]] = {}
    lines = []
    for one in run.samples:
        if isinstance(one, FairnessWait):
            waited.setdefault(one.database, []).append(one.milliseconds)
        elif isinstance(one, Idle):
            rate = one.statements / one.seconds
            kinds = ", ".join(f"{kind} {short(number / one.seconds)}" for kind, number in one.kinds.items() if number)
            lines.append(f"- {one.database}: an idle node sends {short(rate)} statements a second ({kinds})")
    for database, found in waited.items():
        middle, worst = percentile(found, 0.5), max(found)
        lines.append(
            f"- {database}: while one of four processes had a slot free, a task waited {short(middle)} ms (p50),"
            f" {short(worst)} ms (worst of {len(found)})"
        )
    return lines


def _failures(run: BenchRun) -> list[str]:
    failures = [one for one in run.samples if isinstance(one, MeasurementFailure)]
    return [f"- {one.database}: {one.what}: {one.reason.splitlines()[-1][:200]}" for one in failures]


def _percentiles(values: Sequence[float]) -> tuple[float, float]:
    return percentile(values, 0.5), percentile(values, 0.99)


def _read(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"
