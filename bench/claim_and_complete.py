"""Claiming and completing: the two writes of a task's life after its enqueuing, without a worker around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bench.databases import BenchDatabase, register_bench_process
from bench.samples import TimingSample
from bench.sizes import Sizes
from peerd.store.outcomes import ClaimId, complete
from peerd.store.statements import new_token
from peerd.store.take.claiming import claim

WARM = 6
"""Batches before the clock runs: statements are compiled, and psycopg prepares them after five."""
Claim = Callable[[int], list[Any]]
Complete = Callable[[list[Any]], object]


def measure(target: BenchDatabase, sizes: Sizes) -> Iterator[TimingSample]:
    """Claim a batch, complete it, and so on, by the bare driver and by the store's operations."""
    ways: dict[str, tuple[Claim, Complete]] = {
        "bare": (target.floors["bare"].claim, target.floors["bare"].complete),
        "same": (target.floors["same"].claim, target.floors["same"].complete),
        "peerd": operations(target),
    }
    for batch, number in sizes.hold.items():
        for by, (take, finish) in ways.items():
            target.empty()
            target.floors["bare" if by == "bare" else "same"].insert(number + WARM * batch)
            target.analyze()
            for _ in range(WARM):
                finish(take(batch))
            yield from _hold(target.name, by, batch, number, take, finish)


def operations(target: BenchDatabase) -> tuple[Claim, Complete]:
    """The store's claim and complete, each in a transaction of its own."""
    claimer = register_bench_process(target.database, "bench")

    def take(limit: int) -> list[ClaimId]:
        won = target.database.run_short(claim, claimer, token=new_token(), limit=limit)
        return [ClaimId(task.id, task.lease) for task in won.tasks]

    def finish(held: list[ClaimId]) -> None:
        refused = target.database.run_short(complete, claimer.process_id, dict.fromkeys(held))
        assert not refused

    return take, finish


def _hold(name: str, by: str, batch: int, number: int, take: Claim, finish: Complete) -> Iterator[TimingSample]:
    claiming, completing, both = (
        TimingSample(database=name, measurement=what, batch=batch, by=by, tasks=number)
        for what in ("claim", "complete", "claim + complete")
    )
    left = number
    while left:
        with both.running():
            with claiming.running():
                held = take(min(batch, left))
            with completing.running():
                finish(held)
        assert held, "the queue is empty too early"
        left -= len(held)
    yield from (claiming, completing, both)
