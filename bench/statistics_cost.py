"""What statistics cost: drains without and with them in turns, and the statements that they send.

    python -m bench.statistics_cost --on sqlite mariadb postgresql --rounds 7 --everything

With ``--everything`` the drains have metrics and keep log lines, too: all that a node has switched on by default.

A ratio is taken within a round; what counts is the median of the rounds. Below 1.00 a drain with statistics is slower.
Each process writes its counts once a second here, ten times as often as in a node, so that a drain of a few seconds has
several writes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from bench.databases import VARIANTS, BenchDatabase, open_bench_database
from bench.draining import BEYOND, WARM, drain, fill
from bench.samples import Ratio
from bench.worker import Drained

FLUSH_EVERY: Final = 1.0
"""Seconds."""
ON: Final = ("sqlite", "mariadb", "postgresql")
Pair = tuple[Drained, Drained]
"""A drain without statistics, and one with them."""


def main() -> None:
    """Measure what the arguments say, and print a table."""
    chosen = arguments(sys.argv[1:])
    print("| database | tasks/s without | with | ratio | by processor time | statements/s of a process |")
    print("|---|--:|--:|--:|--:|--:|")
    for name in chosen.on:
        with open_bench_database(name) as target:
            pairs = list(measure(target, chosen))
        print(row(name, pairs, chosen.tasks), flush=True)


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m bench.statistics_cost", description="What statistics cost.")
    parser.add_argument("--on", nargs="+", choices=VARIANTS, default=ON, help="databases")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--count", type=int, default=100, help="tasks at once")
    parser.add_argument("--tasks", type=int, default=40_000, help="of each drain")
    parser.add_argument("--everything", action="store_true", help="metrics and log lines, too")
    return parser.parse_args(words)


def measure(target: BenchDatabase, chosen: argparse.Namespace) -> Iterator[Pair]:
    """Drains in turns; which one comes first changes with each round."""
    count, tasks = chosen.count, chosen.tasks
    for number in range(chosen.rounds):
        found: dict[bool, Drained] = {}
        for is_on in (False, True) if number % 2 == 0 else (True, False):
            target.empty()
            fill(target, tasks + (WARM + BEYOND) * count)
            more = is_on and chosen.everything
            found[is_on] = drain(
                target,
                count,
                WARM * count,
                tasks,
                "metrics" if more else "nothing",
                statistics_every=FLUSH_EVERY if is_on else None,
                keeps_lines=more,
            )
        yield found[False], found[True]


def row(name: str, pairs: Sequence[Pair], tasks: int) -> str:
    """The medians of the rounds, as a row of a Markdown table.

    >>> off, on = Drained(seconds=1.0, cpu=0.5), Drained(seconds=2.0, cpu=0.5, statements=2)
    >>> row("sqlite", [(off, on)], 1000)
    '| sqlite | 1,000 | 500 | 0.50 (0.50–0.50) | 1.00 (1.00–1.00) | 1.0 |'
    """
    by_time = Ratio.of([off.seconds / on.seconds for off, on in pairs])
    by_processor = Ratio.of([off.cpu / on.cpu for off, on in pairs])
    rates = [f"{tasks / median(one.seconds for one in side):,.0f}" for side in zip(*pairs, strict=True)]
    statements = median(on.statements / on.seconds for _, on in pairs)
    return f"| {name} | {rates[0]} | {rates[1]} | {by_time} | {by_processor} | {statements:.1f} |"


if __name__ == "__main__":
    main()
