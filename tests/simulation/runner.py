"""Runs plans: one, many, and a failing one again and again until it is small."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from tests.simulation.backing_database import Arena
from tests.simulation.history import History
from tests.simulation.plan import Plan, draw_plan
from tests.simulation.shrink import shrink
from tests.simulation.violation import Broken
from tests.simulation.world import World

COLLECT_EVERY: Final = 20
"""Runs."""


class Outcome(msgspec.Struct, frozen=True):
    """How a run ended: which rule it broke, if any, and what happened in it."""

    plan: Plan
    rule: str | None
    proof: str
    history: History


class Totals(msgspec.Struct):
    """What many runs were made of."""

    runs: int = 0
    counts: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.counts.update(outcome.history.counts)

    def __str__(self) -> str:
        what = ", ".join(f"{count} × {name}" for name, count in self.counts.most_common())
        return f"{self.runs} runs: {what}"


def run(plan: Plan, arena: Arena) -> Outcome:
    """Run a plan to its end, or to the first broken rule."""
    world = World(plan, arena)
    gc.disable()  # the garbage of a run is small, and looking for it takes a fifth of the time
    try:
        world.run()
    except Broken as broken:
        return Outcome(plan, broken.rule, broken.proof, world.history)
    finally:
        gc.enable()
    return Outcome(plan, None, "", world.history)


def first_broken(
    seeds: Iterable[int], arena: Arena, *, focus: tuple[str, ...] = (), totals: Totals | None = None
) -> Outcome | None:
    """The first seed that breaks a rule."""
    for number, seed in enumerate(seeds):
        if not number % COLLECT_EVERY:
            gc.collect()
        outcome = run(draw_plan(seed, focus), arena)
        if totals is not None:
            totals.add(outcome)
        if outcome.rule is not None:
            return outcome
    return None


def report(outcome: Outcome, arena: Arena) -> str:
    """A broken run for people: made small, with its whole history."""
    small = shrink(outcome.plan, lambda plan: run(plan, arena).rule == outcome.rule)
    again = run(small, arena)
    return "\n".join(
        [
            f"seed {outcome.plan.seed} breaks: {outcome.rule}",
            again.proof or outcome.proof,
            f"made small: {small.nodes} nodes × {small.workers} processes × {small.places} places,",
            *(f"    {one}" for one in small.limits),
            *(f"    at {one.at}: {one.what} {one.handler}" for one in small.happenings),
            "what happened:",
            *again.history.lines,
            f"again: make simulate SEEDS={outcome.plan.seed}",
        ]
    )
