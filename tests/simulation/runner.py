"""Runs plans: one, many, and a failing one repeatedly until it is reduced."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from tests.simulation.backing_database import BackingDatabase
from tests.simulation.history import InvariantViolation, SimulationHistory
from tests.simulation.plan import SimulationPlan, draw_plan
from tests.simulation.world import World

TRIES = 400


def shrink(plan: SimulationPlan, fails: Callable[[SimulationPlan], bool]) -> SimulationPlan:
    """The smallest plan found that fails as this one does."""
    candidates = _smaller(plan)
    for _ in range(TRIES):
        smaller = next(candidates, None)
        if smaller is None:
            break
        if fails(smaller):
            plan, candidates = smaller, _smaller(smaller)
    return plan


def _smaller(plan: SimulationPlan) -> Iterator[SimulationPlan]:
    """Plans a step smaller, the boldest first."""
    events, limits = plan.events, plan.limits
    for part in (8, 4, 2, 1):
        for begin in range(0, len(events), part):
            yield replace(plan, events=events[:begin] + events[begin + part :])
    for field in ("nodes", "workers", "executor_slots", "gateways", "row_workers", "clients"):
        for value in range(1, getattr(plan, field)):
            yield replace(plan, **{field: value})
    for number in range(len(limits)):
        yield replace(plan, limits=limits[:number] + limits[number + 1 :])
    last = events[-1].at if events else 0.0
    if last < plan.seconds:
        yield replace(plan, seconds=last)


COLLECT_EVERY: Final = 20


class SimulationResult(msgspec.Struct, frozen=True):
    """How a run ended: which rule it broke, if any, and what happened in it."""

    plan: SimulationPlan
    rule: str | None
    evidence: str
    history: SimulationHistory


def run(plan: SimulationPlan, backing_database: BackingDatabase) -> SimulationResult:
    """Run a plan to its end, or to the first broken rule."""
    world = World(plan, backing_database)
    gc.disable()  # the garbage of a run is small, and looking for it takes a fifth of the time
    try:
        world.run()
    except InvariantViolation as broken:
        return SimulationResult(plan, broken.rule, broken.evidence, world.history)
    finally:
        gc.enable()
    return SimulationResult(plan, None, "", world.history)


def find_violation(
    seeds: Iterable[int], database: BackingDatabase, focus: tuple[str, ...] = (), counts: Counter[str] | None = None
) -> SimulationResult | None:
    """The first seed that breaks a rule."""
    for number, seed in enumerate(seeds):
        if not number % COLLECT_EVERY:
            gc.collect()
        outcome = run(draw_plan(seed, focus), database)
        if counts is not None:
            counts.update({**outcome.history.counts, "runs": 1})
        if outcome.rule is not None:
            return outcome
    return None


def report(outcome: SimulationResult, backing_database: BackingDatabase) -> str:
    """The report of a failed run: the reduced plan, with its whole history."""
    small = shrink(outcome.plan, lambda plan: run(plan, backing_database).rule == outcome.rule)
    again = run(small, backing_database)
    return "\n".join([
        f"seed {outcome.plan.seed} breaks: {outcome.rule}",
        again.evidence or outcome.evidence,
        f"reduced to: {small.nodes} nodes × {small.workers} processes × {small.executor_slots} executor slots,",
        *(f"    {one}" for one in small.limits),
        *(f"    at {one.at}: {one.what} {one.handler}" for one in small.events),
        "what happened:",
        *again.history.lines,
        f"again: make simulate SEEDS={outcome.plan.seed}",
    ])  # fmt: skip
