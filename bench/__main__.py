"""``make bench``: measure, print the report, keep the samples."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

from bench import draining, enqueuing, holding, picking_up
from bench.databases import KINDS, ServerUnavailableError, Stage, stage
from bench.machine import this_machine
from bench.report import Run, report, save
from bench.samples import PickUp, Timing
from bench.sizes import BY_NAME, Sizes

Measure = Callable[[Stage, Sizes], Iterable[Timing]]
IN_ROUNDS: Final[dict[str, Measure]] = {
    "enqueue": enqueuing.measure,
    "hold": holding.measure,
    "drain": draining.measure,
}
EVERYTHING: Final = (*IN_ROUNDS, "pick-up")


def main() -> None:
    """Run what the arguments say."""
    chosen = arguments(sys.argv[1:])
    run = measure(chosen.on, chosen.only, BY_NAME[chosen.size])
    print(report(run))
    print(f"\nraw samples: {save(run)}")


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="How fast peerd is, beside the bare drivers.")
    parser.add_argument("--size", choices=BY_NAME, default="full", help="quick: two to four minutes")
    parser.add_argument("--on", nargs="+", choices=KINDS, default=KINDS, help="databases")
    parser.add_argument("--only", nargs="+", choices=EVERYTHING, default=EVERYTHING, help="measurements")
    return parser.parse_args(words)


def measure(kinds: Iterable[str], only: Sequence[str], sizes: Sizes) -> Run:
    """Measure on each database. Rounds are interleaved: a slow minute of the machine touches all of them alike."""
    with ExitStack() as afterwards:
        stages = [opened for kind in kinds if (opened := _open(kind, afterwards)) is not None]
        machine = this_machine()
        timings = list(_rounds(stages, [IN_ROUNDS[name] for name in only if name in IN_ROUNDS], sizes))
        pick_ups = _pick_ups(stages, sizes) if "pick-up" in only else []
        versions = {one.kind: one.version for one in stages}
    return Run(machine=machine, sizes=sizes, versions=versions, timings=timings, pick_ups=pick_ups)


def _open(kind: str, afterwards: ExitStack) -> Stage | None:
    try:
        return afterwards.enter_context(stage(kind))
    except ServerUnavailableError as error:
        print(f"NOT MEASURED on {kind}: {error}", file=sys.stderr)
        return None


def _rounds(stages: Sequence[Stage], measures: Sequence[Measure], sizes: Sizes) -> Iterator[Timing]:
    for number in range(sizes.rounds):
        for one in stages:
            print(f"round {number + 1} of {sizes.rounds}: {one.kind}", file=sys.stderr)
            for measured in measures:
                for timing in measured(one, sizes):
                    timing.round = number
                    yield timing


def _pick_ups(stages: Sequence[Stage], sizes: Sizes) -> list[PickUp]:
    """On all databases at once: a node that waits takes no time from the others."""
    print(f"pick-up: {sizes.pick_ups} tasks on each database", file=sys.stderr)
    with ThreadPoolExecutor(max(len(stages), 1)) as threads:
        return [one for found in threads.map(lambda at: picking_up.measure(at, sizes), stages) for one in found]


if __name__ == "__main__":
    main()
