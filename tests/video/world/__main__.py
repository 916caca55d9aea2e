"""Print the table, or groups of it: `python -m tests.video.world [--csv] [--worst] [group …]`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import csv
import sys
import tempfile
from pathlib import Path

from tests.video.world.rows import GROUPS, WORST
from tests.video.world.runner import only_the_wheel, run_rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", choices=[[], *GROUPS], default=[])
    parser.add_argument("--csv", action="store_true")
    parser.add_argument("--worst", action="store_true", help="those rows alone that make test runs")
    parser.add_argument("--row", default="", help="part of a row's name")
    parser.add_argument("--keep", type=Path, help="a folder in which the files stay")
    given = parser.parse_args()
    writer, wrong = csv.writer(sys.stdout, lineterminator="\n"), 0
    for group in given.groups or GROUPS:
        rows = [row for row in GROUPS[group] if given.row in row.name and (row.name in WORST or not given.worst)]
        hidden = only_the_wheel() if group == "wheel" else contextlib.nullcontext()
        with tempfile.TemporaryDirectory() as folder, hidden:
            outcomes = asyncio.run(run_rows(rows, (given.keep or Path(folder)) / group))
        for each in outcomes:
            words = (group, each.name, each.outcome, each.judgement or "right", f"{each.seconds:.1f}")
            print(" | ".join(words), flush=True) if not given.csv else writer.writerow(words)
        wrong += sum(bool(each.judgement) for each in outcomes)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
