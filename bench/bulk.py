"""A bulk retry of many dead tasks by a node's manager, and claims of another queue beside it.

``python -m bench.bulk DATABASE ROWS``, such as ``mariadb 100000``; it prints a Markdown table. Claims run one after the
other, first while the manager has nothing to do, then until the bulk action has ended; table, node and claims are the
same in both.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Final

from bench.databases import BenchDatabase, open_bench_database
from bench.filling import RowTemplate, insert_rows, unsafe_fast_fill
from bench.node import running_node
from bench.shapes import WARM, ShapedTable
from peerd.domain.bulk import BulkRetry
from peerd.operate.client import Client
from peerd.operate.task_filter import TaskFilter

IDLE: Final = 15.0
"""Seconds of claims before the bulk action."""
BETWEEN: Final = 0.01
"""Seconds between two claims: they are there to see, not to fill the machine."""
LONGEST: Final = 600.0
"""Seconds until it must have ended."""
UP_WITHIN: Final = 60.0


def measure(target: BenchDatabase, rows: int) -> None:
    """Fill, claim, begin the bulk action, claim beside it, and print."""
    dead = RowTemplate(
        number=rows, values={"queue": "'old'", "status": "'dead'", "error": "'OSError'"}, moments={"finished_at": -600}
    )
    with unsafe_fast_fill(target._connection, target.kind):  # noqa: SLF001 - the bare driver's connection
        insert_rows(target._connection, target.kind, dead)  # noqa: SLF001 - as above
    target.analyze()
    table = ShapedTable(target, target.url)
    client: Client = target.client
    try:
        with running_node(target, "bulk"):
            _wait_until(client.bulk.has_manager)
            for _ in range(WARM):
                table.offer_and_claim()
            until = time.monotonic() + IDLE
            idle = _claims(table, lambda: time.monotonic() < until)
            created = time.monotonic()
            bulk_id = client.bulk.create(BulkRetry(), TaskFilter(status="dead")).id
            _wait_until(lambda: client.bulk.get(bulk_id).started_at is not None)
            began = time.monotonic()
            beside = _claims_until_ended(table, client, bulk_id)
            seconds = time.monotonic() - began
            ended = client.bulk.get(bulk_id)
    finally:
        table.close()
    assert (ended.state, ended.done) == ("done", rows), ended
    print(f"{target.version}: {rows:,} tasks retried in {seconds:.1f} s, begun after {began - created:.1f} s\n")
    print("| claims | number | median ms | p99 ms |\n|---|--:|--:|--:|")
    for name, times in (("idle", idle), ("beside", beside)):
        print(f"| {name} | {len(times)} | {statistics.median(times):.2f} | {_p99(times):.2f} |")
    print(f"\np99 beside / idle: {_p99(beside) / _p99(idle):.2f}", flush=True)


def _claims(table: ShapedTable, goes_on: Callable[[], bool]) -> list[float]:
    """The milliseconds of claims, one after the other."""
    times = []
    while goes_on():
        times.append(table.offer_and_claim())
        time.sleep(BETWEEN)
    return times


def _claims_until_ended(table: ShapedTable, client: Client, bulk_id: int) -> list[float]:
    """The same until the bulk action has ended; it is looked at every half second."""
    last = time.monotonic()
    deadline = last + LONGEST

    def goes_on() -> bool:
        nonlocal last
        if time.monotonic() - last < 0.5:
            return True
        last = time.monotonic()
        if last > deadline:
            raise TimeoutError(f"it has not ended within {LONGEST:g} s")
        return not client.bulk.get(bulk_id).has_ended

    return _claims(table, goes_on)


def _p99(times: list[float]) -> float:
    return sorted(times)[int(0.99 * len(times))]


def _wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + UP_WITHIN
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError("no manager")
        time.sleep(0.1)


def main(arguments: list[str]) -> None:
    """Measure on the database of the arguments."""
    kind, rows = arguments[0], int(arguments[1])
    with open_bench_database(kind) as target:
        measure(target, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
