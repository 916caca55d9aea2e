"""How long it takes to look at a table of millions of tasks: pages of filters, counts, statistics, one task.

``python -m bench.large_table DATABASE ROWS``, such as ``mariadb 10000000``; it prints a Markdown table.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Final

from bench.databases import BenchDatabase, open_bench_database
from bench.filling import RowTemplate, insert_rows, unsafe_fast_fill
from peerd.domain.attempt_totals import AttemptTotals, Histogram
from peerd.operate.client import Client
from peerd.store.attempt_series import BucketRow, write_buckets
from peerd.store.queue_states import sample_depths, write_depths
from peerd.store.time_series import HOUR, MINUTE, TEN_MINUTES, bucket_start

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

HANDLERS, PROCESSES, NODES = 50, 2, 3
"""Whose attempts have ended in each minute; of each node, so many processes."""

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
        "overview": client.statistics.overview,
        "statistics of an hour by queue": client.statistics.summary,
        "statistics of a day by handler": lambda: client.statistics.summary("1d", by="handler"),
        "series of an hour": client.statistics.series,
        "series of a day of a queue": lambda: client.statistics.series("1d", queue="q0"),
        "series of thirty days": lambda: client.statistics.series("30d"),
        "depths of an hour": client.statistics.depths,
        "sample of the queues (by one manager)": lambda: client.database.read(sample_depths),
        "a task with its attempts": lambda: (tasks.get(some), tasks.attempts(some)),
    }


def fill(target: BenchDatabase, rows: int) -> None:
    """Write the rows, as they are when tasks have come and gone for long."""
    templates = [RowTemplate(number=int(rows * share), values=one, moments=times) for share, one, times in SHARES]
    _insert(target, templates)
    target.analyze()


def fill_lines(target: BenchDatabase, rows: int) -> None:
    """As many log lines, twenty a second, and the failed attempts of the dead tasks, fifty a second."""
    dead, (last,) = int(rows * SHARES[1][0]), target.ask("SELECT max(id) FROM tasks WHERE status = 'dead'")[0]
    message = "'a frame was read and encoded, and nothing was strange in it'"
    line = {"lease": "1", "attempt": "1", "level": "'info'", "logger": "'app'", "message": message}
    line |= {"task_id": "(n - n % 10) / 10", "sequence": "n % 10"}
    failed = {"lease": "1", "number": "1", "outcome": "'dead'", "error": "'OSError: no space left on device'"}
    failed["task_id"] = f"{last - dead} + n"
    described = (
        ("task_logs", rows, line, {"at": "-n / 20.0"}),
        ("attempts", dead, failed, {"ended_at": f"(n - {dead}) / 50.0"}),
    )
    _insert(target, [RowTemplate(number=n, values=one, moments=at, table=table) for table, n, one, at in described])


def _insert(target: BenchDatabase, templates: Sequence[RowTemplate]) -> None:
    with unsafe_fast_fill(target._connection, target.kind):  # noqa: SLF001 - the bare driver's connection
        for template in templates:
            insert_rows(target._connection, target.kind, template)  # noqa: SLF001 - as above


def fill_statistics(target: BenchDatabase) -> None:
    """The time series of a busy cluster, as far back as they are looked at in each step, and some more."""
    present = bucket_start(target.client.now(), MINUTE)
    durations = Histogram.of([0.01 * 1.3**number for number in range(40)])
    totals = AttemptTotals({"done": 38, "failed": 2}, 20.0, durations, durations)
    processes = [(node, 10 * node + number) for node in range(NODES) for number in range(PROCESSES)]
    for step, count in ((MINUTE, 150), (TEN_MINUTES, 300), (HOUR, 730)):
        holders = processes if step == MINUTE else [(node, 0) for node in range(NODES)]
        for number in range(count):
            at = bucket_start(present, step) - timedelta(seconds=step * number)
            rows = [
                BucketRow(step, at, f"q{handler % 5}", f"handler {handler}", node, process, totals)
                for handler in range(HANDLERS)
                for node, process in holders
            ]
            target.database.run(write_buckets, rows)
    target.ask("ANALYZE TABLE statistics" if target.kind == "mariadb" else "ANALYZE statistics")
    target.database.run(write_depths, target.database.read(sample_depths))


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
        print(f"{target.version}: {rows:,} rows in {time.perf_counter() - started:.0f} s\n", flush=True)
        fill_statistics(target)
        print("| look | median ms | p95 ms |\n|---|--:|--:|")
        for name, times in measure(looks_at(target.client)):
            print(f"| {name} | {statistics.median(times):.1f} | {times[int(0.95 * len(times))]:.1f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
