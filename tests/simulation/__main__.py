"""``python -m tests.simulation FIRST:LAST``: runs seeds on all processors; prints a failing one, made small.

The status is 1 when a seed breaks a rule, and 0 otherwise. One seed alone is shown with its history.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.simulation.backing_database import BackingDatabase, open_backing_database
from tests.simulation.plan import draw_plan
from tests.simulation.runner import find_violation, report, run

AT_ONCE: Final = 100
"""Seeds that one process runs on one backing database."""
FOLDER: Final = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seeds", nargs="?", default="0:2000", help="FIRST:LAST, or one seed with its history")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    given = parser.parse_args()
    first, _, last = given.seeds.partition(":")
    return _run_all(range(int(first), int(last)), given.jobs) if last else _show_one(int(first))


def _run_all(seeds: range, jobs: int) -> int:
    began = time.monotonic()
    totals: Counter[str] = Counter()
    failures = 0
    parts = [seeds[start : start + AT_ONCE] for start in range(0, len(seeds), AT_ONCE)]
    with ProcessPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(_run_part, part) for part in parts]):
            counts, problem = done.result()
            totals.update(counts)
            failures += bool(problem)
            spent = time.monotonic() - began
            print(problem or f"{totals['runs']} of {len(seeds)} seeds, {failures} failed; {spent:.0f} s", flush=True)
    print(", ".join(f"{count} × {name}" for name, count in totals.most_common()))
    return 1 if failures else 0


def _run_part(seeds: range) -> tuple[Counter[str], str]:
    counts: Counter[str] = Counter()
    with _new_database() as backing_database:
        outcome = find_violation(seeds, backing_database, counts=counts)
        return counts, "" if outcome is None else report(outcome, backing_database)


def _show_one(seed: int) -> int:
    with _new_database() as backing_database:
        outcome = run(draw_plan(seed), backing_database)
        print("\n".join(outcome.history.lines))
        holds = outcome.rule is None
        print(f"seed {seed} holds; {outcome.history.digest()}" if holds else report(outcome, backing_database))
        return 0 if holds else 1


@contextmanager
def _new_database() -> Iterator[BackingDatabase]:
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, open_backing_database(Path(folder)) as made:
        yield made


if __name__ == "__main__":
    sys.exit(main())
