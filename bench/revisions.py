"""This revision beside an earlier one: has something become slower?

    make bench-revisions BASE=v1.2 ARGUMENTS="--only drain --rounds 7"

Both run the same measurements in turns, each with its own code and its own servers, in the same environment: a slow
minute of the machine touches both. A ratio is taken within a round; what counts is the median of the rounds. Below 1.00
this revision is slower.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from bench.databases import VARIANTS
from bench.report import BenchRun
from bench.samples import MeasurementFailure, PickUp, Ratio
from bench.sizes import ALL, BY_NAME

ROOT: Final = Path(__file__).parents[1]
SAVED: Final = "raw samples: "
ONLY: Final = ("enqueue", "drain", "pick-up")
ON: Final = ("sqlite", "mariadb", "postgresql")
OURS: Final = (*ALL, "everything")
"""What a failure is called that is not a peer's, which need not be installed."""
Figures = dict[str, float]


def main() -> None:
    """Measure what the arguments say, and print the ratios."""
    chosen = arguments(sys.argv[1:])
    rounds: list[tuple[Figures, Figures]] = []
    with checkout(chosen.base) as base:
        for number in range(chosen.rounds):
            places = (ROOT, base) if number % 2 == 0 else (base, ROOT)
            measured = {place: figures(measure(place, chosen)) for place in places}
            rounds.append((measured[ROOT], measured[base]))
            print(f"round {number + 1} of {chosen.rounds}", file=sys.stderr, flush=True)
    print(table(rounds, chosen.base))


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m bench.revisions", description=__doc__)
    parser.add_argument("base", help="the earlier revision, by any name that git knows")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", choices=BY_NAME, default="quick")
    parser.add_argument("--on", nargs="+", choices=VARIANTS, default=ON, help="databases")
    parser.add_argument("--only", nargs="+", choices=ALL, default=ONLY, help="measurements")
    return parser.parse_args(words)


@contextlib.contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """A folder with the files of a revision, for a while."""
    with tempfile.TemporaryDirectory(prefix="peerd-bench-") as folder:
        place = Path(folder) / "base"
        git("worktree", "add", "--quiet", "--detach", str(place), revision)
        # Nodes are told the folder alone, and would import what is installed: this one.
        (place / "sitecustomize.py").write_text(f"import sys\nsys.path.insert(0, {str(place / 'src')!r})\n")
        try:
            yield place
        finally:
            git("worktree", "remove", "--force", str(place))


def git(*words: str) -> None:
    subprocess.run(["git", *words], cwd=ROOT, check=True)


def measure(place: Path, chosen: argparse.Namespace) -> BenchRun:
    """One round of a revision, in processes that import nothing of the other."""
    command = [sys.executable, "-P", "-m", "bench", "--size", chosen.size, "--rounds", "1"]
    command += ["--on", *chosen.on, "--only", *chosen.only]
    path = os.pathsep.join([str(place / "src"), str(place)])
    done = subprocess.run(
        command,
        cwd=place,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    saved = next(line for line in reversed(done.stdout.splitlines()) if line.startswith(SAVED))
    return msgspec.json.decode((place / saved.removeprefix(SAVED)).read_bytes(), type=BenchRun)


def figures(run: BenchRun) -> Figures:
    """What a run says of peerd itself, by name; more is better.

    Raises:
        SystemExit: something was not measured.
    """
    for sample in run.samples:
        if isinstance(sample, MeasurementFailure) and sample.what in OURS:
            sys.exit(f"not measured: {sample.what} on {sample.database}: {sample.reason}")
    found = {f"{key[1]}, batch {key[2]}, {key[0]}": key for key in run.timings if key[3] == "peerd"}
    rates = {name: median(one.rate for one in run.timings.of(key)) for name, key in found.items()}
    for name, key in found.items():
        used = run.timings.cpu(*key)
        if used:
            rates[f"{name}, by processor time"] = 1 / used
    waits: dict[str, list[float]] = {}
    for sample in run.samples:
        if isinstance(sample, PickUp) and sample.by.startswith("peerd"):
            waits.setdefault(f"pick-up, {sample.by.removeprefix('peerd, ')}, {sample.database}", []).append(
                sample.milliseconds
            )
    return rates | {name: 1000 / median(times) for name, times in waits.items()}


def table(rounds: Sequence[tuple[Figures, Figures]], base: str) -> str:
    """The ratios of all rounds, as Markdown.

    >>> print(table([({"drain": 110.0}, {"drain": 100.0}), ({"drain": 90.0}, {"drain": 100.0})], "v1"))
    | | per second | ÷ v1, median of 2 rounds (least–most) |
    |---|---|---|
    | drain | 100 | 1.00 (0.90–1.10) |
    """
    lines = [f"| | per second | ÷ {base}, median of {len(rounds)} rounds (least–most) |", "|---|---|---|"]
    for name in rounds[0][0]:
        pairs = [(ours[name], theirs[name]) for ours, theirs in rounds if name in ours and name in theirs]
        ratio = Ratio.of([ours / theirs for ours, theirs in pairs])
        lines.append(f"| {name} | {median(ours for ours, _ in pairs):,.0f} | {ratio} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
