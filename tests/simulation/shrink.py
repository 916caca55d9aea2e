"""Reduces a failing plan: leaves out all that the failure does not need.

Delta debugging (Zeller and Hildebrandt, 'Simplifying and isolating failure-inducing input', 2002) over the happenings,
then fewer nodes, processes and executor slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from tests.simulation.plan import SimulationPlan

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
    part = len(events)
    while part >= 1:
        for begin in range(0, len(events), part):
            yield replace(plan, events=events[:begin] + events[begin + part :])
        part //= 2
    for field in ("nodes", "workers", "executor_slots", "gateways", "row_workers", "clients"):
        for value in range(1, getattr(plan, field)):
            yield replace(plan, **{field: value})
    for number in range(len(limits)):
        yield replace(plan, limits=limits[:number] + limits[number + 1 :])
    last = events[-1].at if events else 0.0
    if last < plan.seconds:
        yield replace(plan, seconds=last)
