"""Claiming and completing: the two writes of a task's life after its enqueuing, without a worker around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bench.databases import Stage, enter
from bench.samples import Timing
from bench.sizes import Sizes
from peerd.store.claim.claim import claim
from peerd.store.outcomes.complete import complete
from peerd.store.outcomes.recording import Held
from peerd.store.statements.token import new_token

WARM = 6
"""Batches before the clock runs: statements are compiled, and psycopg prepares them after five."""
Claim = Callable[[int], list[Any]]
Complete = Callable[[list[Any]], object]


def measure(stage: Stage, sizes: Sizes) -> Iterator[Timing]:
    """Claim a batch, complete it, and so on, by the bare driver and by the store's operations."""
    ways: dict[str, tuple[Claim, Complete]] = {
        "bare": (stage.floors["bare"].claim, stage.floors["bare"].complete),
        "same": (stage.floors["same"].claim, stage.floors["same"].complete),
        "peerd": operations(stage),
    }
    for batch, number in sizes.hold.items():
        for by, (take, finish) in ways.items():
            stage.empty()
            stage.floors["bare" if by == "bare" else "same"].insert(number + WARM * batch)
            stage.analyze()
            for _ in range(WARM):
                finish(take(batch))
            yield from _hold(stage.name, by, batch, number, take, finish)


def operations(stage: Stage) -> tuple[Claim, Complete]:
    """The store's claim and complete, each in a transaction of its own."""
    claimer = enter(stage.database, "bench")

    def take(limit: int) -> list[Held]:
        won = stage.database.run_each(claim, claimer, token=new_token(), limit=limit)
        return [Held(task.id, task.lease) for task in won.tasks]

    def finish(held: list[Held]) -> None:
        refused = stage.database.run_each(complete, claimer.process_id, dict.fromkeys(held))
        assert not refused

    return take, finish


def _hold(name: str, by: str, batch: int, number: int, take: Claim, finish: Complete) -> Iterator[Timing]:
    claiming, completing, both = (
        Timing(database=name, measurement=what, batch=batch, by=by, tasks=number)
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
