"""`python -m tests.mutants`: which of sixty small defects the tests find.

    choose FILE          sixty mutants of the code, by chance, into a file
    map FILE             run all tests once, and note which of them execute which mutant's line, in FILE.hits
    judge FILE           try each mutant on the tests that execute its line; one line a mutant

`judge` tries the tests of `make test` first, then the slow ones. ``--checkout`` names another checkout, to compare two
revisions.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.choice import ROOT, all_mutants, choose
from tests.mutants.mutant import Mutant
from tests.mutants.probes import insert, load, read_hits, save
from tests.mutants.workbench import Workbench

WITHIN = 1800.0
"""Seconds that the tests of a mutant may take; one on which they do not end is found."""
BY_TEST, BY_ALL = "test", "test-all"
"""The target whose tests find a mutant first."""
BOOTING = tuple(
    f"tests/{name}/" for name in ("cluster", "supervision", "cli", "pages/live", "demo", "examples", "faults")
)
"""Folders whose processes are booted by one test of a file for others."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("choose", "map", "judge"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=32)
    parser.add_argument("--checkout", type=Path, default=ROOT)
    parser.add_argument("--hits", type=Path, help="default: FILE.hits")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", help="numbers of mutants, such as 3,17")
    arguments = parser.parse_args()
    arguments.hits = arguments.hits or arguments.file.with_suffix(".hits")
    if arguments.what == "choose":
        save(choose(all_mutants(), arguments.count, arguments.seed), arguments.file)
        return 0
    with tempfile.TemporaryDirectory(prefix="peerd-mutants-") as folder:
        return (map_ if arguments.what == "map" else judge)(arguments, Path(folder))


def map_(arguments: argparse.Namespace, folder: Path) -> int:
    bench = Workbench(arguments.checkout, folder / "probed")
    arguments.hits.unlink(missing_ok=True)
    insert(load(arguments.file), bench.folder, bench.packages, arguments.hits.resolve())
    status, printed = bench.run("-n", str(2 * arguments.jobs), within=3 * 3600.0)
    print("\n".join(printed.splitlines()[-40:]))
    return status if status is not None else 1


def judge(arguments: argparse.Namespace, folder: Path) -> int:
    mutants, hits = load(arguments.file), read_hits(arguments.hits)
    benches: SimpleQueue[Workbench] = SimpleQueue()
    for number in range(arguments.jobs):
        benches.put(Workbench(arguments.checkout, folder / str(number)))
    numbers = [int(word) for word in arguments.only.split(",")] if arguments.only else range(len(mutants))

    def judged(number: int) -> str:
        bench, began = benches.get(), time.monotonic()
        try:
            word, test = _verdict(bench, mutants[number], hits.get(number, []))
        finally:
            benches.put(bench)
        took = f"{time.monotonic() - began:>5.0f} s"
        print(f"{number:>3} {word:<9} {took}  {mutants[number].name[:150]}  {test}".rstrip(), flush=True)
        return word

    with ThreadPoolExecutor(arguments.jobs) as pool:
        words = Counter(pool.map(judged, numbers))
    by_test, by_all = words[BY_TEST], words[BY_TEST] + words[BY_ALL]
    print(f"of {len(numbers)} mutants make test finds {by_test}, and make test-all {by_all}")
    return 0


def _verdict(bench: Workbench, mutant: Mutant, tests: list[str]) -> tuple[str, str]:
    """What finds a mutant, and the test that did."""
    file = bench.folder / mutant.path
    before = file.read_text() if file.exists() else None
    chosen = _ordered(mutant, [test for test in tests if (bench.folder / test.partition("::")[0]).exists()])
    if before is None or not chosen:
        return "gone" if before is None else "not run", ""
    backup = shutil.copy2(file, file.with_suffix(".before"))
    try:
        file.write_text(mutant.apply(before))
        bench.compile([file])
        for word, tier in ((BY_TEST, "not slow"), (BY_ALL, "slow")):
            status, printed = bench.run("-x", "-m", tier, *chosen, within=WITHIN)
            if status in (1, 2, None):
                failed = re.search(r"^(?:FAILED|ERROR) (\S+)", printed, re.MULTILINE)
                return word, failed[1] if failed else ""
            if status not in (0, 5):
                return "broken", printed[-300:]
    finally:
        shutil.move(backup, file)
        bench.compile([file])
    return "missed", ""


def _ordered(mutant: Mutant, tests: list[str]) -> list[str]:
    """The tests to run: those of the mutant's own subject first, and whole files where a test boots for others."""
    package = set(Path(mutant.path).with_suffix("").parts[2:])
    chosen = {test.partition("::" if test.startswith(BOOTING) else "[")[0] for test in tests}
    return sorted(
        chosen, key=lambda test: (test.startswith(BOOTING), -len(package.intersection(test.split("/"))), test)
    )


if __name__ == "__main__":
    sys.exit(main())
