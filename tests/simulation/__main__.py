"""``python -m tests.simulation FIRST:LAST``: runs seeds on all processors; prints a failing one, made small.

The status is 1 when a seed breaks a rule, and 0 otherwise. ``--variants`` shows which seed catches each variant.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Final

from tests.simulation.backing_database import open_backing_database
from tests.simulation.mutations import MUTATIONS, Mutation, mutated
from tests.simulation.plan import draw_plan
from tests.simulation.runner import SimulationTotals, find_violation, report, run

AT_ONCE: Final = 100
"""Seeds that one process runs on one backing database."""
PROGRESS_EVERY: Final = 1000
FOLDER: Final = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seeds", nargs="?", default="0:2000", help="FIRST:LAST, or one seed with its history")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--variants", action="store_true", help="which seed catches each broken variant")
    given = parser.parse_args(arguments)
    if given.variants:
        return _show_mutations(_seeds(given.seeds))
    if ":" not in given.seeds:
        return _show_one(int(given.seeds))
    return _run_all(_seeds(given.seeds), given.jobs)


def _seeds(text: str) -> range:
    first, _, last = text.partition(":")
    return range(int(first), int(last) if last else int(first) + 1)


def _run_all(seeds: range, jobs: int) -> int:
    began = time.monotonic()
    totals, failures = SimulationTotals(), 0
    parts = [seeds[start : start + AT_ONCE] for start in range(0, len(seeds), AT_ONCE)]
    with ProcessPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(_run_part, part) for part in parts]):
            part, problem = done.result()
            totals.runs += part.runs
            totals.counts.update(part.counts)
            if problem is not None:
                failures += 1
                print(problem, flush=True)
            if totals.runs // PROGRESS_EVERY > (totals.runs - part.runs) // PROGRESS_EVERY:
                spent = time.monotonic() - began
                print(f"{totals.runs} of {len(seeds)} seeds, {failures} failed; {spent:.0f} s", flush=True)
    print(f"{totals}\n{failures} failed; {time.monotonic() - began:.0f} s")
    return 1 if failures else 0


def _run_part(seeds: range) -> tuple[SimulationTotals, str | None]:
    totals = SimulationTotals()
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, open_backing_database(Path(folder)) as backing_database:
        outcome = find_violation(seeds, backing_database, totals=totals)
        return totals, None if outcome is None else report(outcome, backing_database)


def _show_one(seed: int) -> int:
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, open_backing_database(Path(folder)) as backing_database:
        outcome = run(draw_plan(seed), backing_database)
        print("\n".join(outcome.history.lines))
        if outcome.rule is None:
            print(f"seed {seed} holds; {outcome.history.digest()}")
            return 0
        print(report(outcome, backing_database))
        return 1


def _show_mutations(seeds: range) -> int:
    caught = [_show_mutation(mutation, seeds) for mutation in MUTATIONS]
    return 0 if all(caught) else 1


def _show_mutation(mutation: Mutation, seeds: range) -> bool:
    with (
        tempfile.TemporaryDirectory(dir=FOLDER) as folder,
        open_backing_database(Path(folder)) as backing_database,
        mutated(mutation),
    ):
        outcome = find_violation(seeds, backing_database)
    how = "NOT CAUGHT" if outcome is None else f"seed {outcome.plan.seed}: {outcome.rule}"
    print(f"{mutation.name:<55} {how}", flush=True)
    return outcome is not None


if __name__ == "__main__":
    sys.exit(main())
