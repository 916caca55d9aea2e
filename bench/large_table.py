"""How long it takes to look at a table of millions of tasks: pages of filters, counts, one task with its attempts.

``python -m bench.large_table DATABASE ROWS``, such as ``mariadb 10000000``; it prints a Markdown table.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

from bench.databases import BenchDatabase, open_bench_database
from bench.filling import RowTemplate, insert_rows, unsafe_fast_fill
from peerd.operate.client import Client

REPETITIONS: Final = 40
SHARES: Final[tuple[tuple[float, dict[str, str], dict[str, int]], ...]] = (
    (0.60, {"status": "'done'", "result": "'{}'"}, {"finished_at": -1800}),
    (0.05, {"status": "'dead'", "error": "'OSError: no space left on device'"}, {"finished_at": -3600}),
    (0.05, {"status": "'scheduled'"}, {"start_at": 3600}),
    (0.01, {"status": "'failure'", "attempts": "1"}, {"start_at": 600}),
    (0.14, {"queue": "'video'", "priority": "20"}, {}),
    (0.14, {"queue": "'video'"}, {}),
    (0.01, {"queue": "'mail'"}, {}),
)
"""Of a table: the share of the rows, their columns, and their times in seconds from now."""

Looks = dict[str, Callable[[], object]]


def looks_at(client: Client) -> Looks:
    """What a page shows."""
    tasks = client.tasks
    some = tasks.page(status="dead", limit=1).items[0].id

    def pages_in_depth() -> object:
        page = tasks.page(status="pending", queue="video", limit=500, bodies=False)
        for _ in range(4):
            page = tasks.page(status="pending", queue="video", limit=500, bodies=False, after=page.next)
        return page

    return {
        "queues: counts, oldest": client.queues.list,
        "page: newest": lambda: tasks.page(bodies=False),
        "page: dead, latest first": lambda: tasks.page(status="dead", bodies=False),
        "page: done of a queue that has none": lambda: tasks.page(status="done", queue="mail", bodies=False),
        "page: pending of a queue": lambda: tasks.page(status="pending", queue="video", bodies=False),
        "five pages of 500 of it": pages_in_depth,
        "page: dead, a text in the error": lambda: tasks.page(status="dead", search="NO SPACE", bodies=False),
        "page: dead, a text that none has": lambda: tasks.page(status="dead", search="elephant", bodies=False),
        "page: a priority that none has": lambda: tasks.page(where=["priority=77"], bodies=False),
        "a task with its attempts": lambda: (tasks.get(some), tasks.attempts(some)),
    }


def fill(target: BenchDatabase, rows: int) -> None:
    """Write the rows, as they are when tasks have come and gone for long."""
    with unsafe_fast_fill(target._connection, target.kind):  # noqa: SLF001 - the bare driver's connection
        for share, values, moments in SHARES:
            template = RowTemplate(number=int(rows * share), values=values, moments=moments)
            insert_rows(target._connection, target.kind, template)  # noqa: SLF001 - as above
    target.analyze()


def measure(looks: Looks) -> Iterator[tuple[str, list[float]]]:
    """The milliseconds of each, sorted."""
    for name, look in looks.items():
        look()
        times = []
        for _ in range(REPETITIONS):
            started = time.perf_counter()
            look()
            times.append(1000 * (time.perf_counter() - started))
        yield name, sorted(times)


def main(arguments: list[str]) -> None:
    """Fill, measure and print."""
    kind, rows = arguments[0], int(arguments[1])
    with open_bench_database(kind) as target:
        started = time.perf_counter()
        fill(target, rows)
        print(f"{target.version}: {rows:,} rows in {time.perf_counter() - started:.0f} s\n")
        print("| look | median ms | p95 ms |\n|---|--:|--:|")
        for name, times in measure(looks_at(target.client)):
            print(f"| {name} | {statistics.median(times):.1f} | {times[int(0.95 * len(times))]:.1f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
