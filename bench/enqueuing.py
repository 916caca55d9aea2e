"""Enqueuing: one task in a transaction of its own, and a thousand in one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.databases import BenchDatabase
from bench.jobs import noop
from bench.samples import TimingSample
from bench.sizes import Sizes

WARM = 6
"""Inserts before the clock runs: statements are compiled, and psycopg prepares them after five."""
WARM_ROWS = 100


def measure(target: BenchDatabase, sizes: Sizes) -> Iterator[TimingSample]:
    """Insert by the bare driver, and by the Client that applications use."""
    for batch, number in sizes.enqueue.items():
        ways: list[tuple[str, Callable[[int], object]]] = [
            ("bare", target.floors["bare"].insert),
            ("same", target.floors["same"].insert),
            ("peerd", lambda rows: enqueue(target, rows)),
        ]
        for by, insert in ways:
            target.empty()
            for _ in range(WARM):
                insert(min(batch, WARM_ROWS))
            timing = TimingSample(database=target.name, measurement="enqueue", batch=batch, by=by, tasks=number)
            with timing.running():
                for done in range(0, number, batch):
                    insert(min(batch, number - done))
            yield timing


def enqueue(target: BenchDatabase, number: int) -> None:
    """As an application does it: the arguments checked, the ids known afterwards."""
    if number == 1:
        target.client.enqueue(noop.with_args(1))
    else:
        target.client.enqueue_many(noop.with_args(one) for one in range(number))
